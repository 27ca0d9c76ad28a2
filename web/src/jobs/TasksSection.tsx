/** A job's tasks, by state, a page at a time: also where there are a million. */
import { get } from "../api/client";
import type { JobView, Page, TaskState, TaskView } from "../api/types";
import { now } from "../live/clock";
import { thisJob, useResource } from "../live/resource";
import { Link, useWord } from "../router";
import { between, count, duration } from "../text/human";
import { Button } from "../ui/Button";
import { Cards, type Column } from "../lists/Cards";
import { Chip } from "../ui/Chip";
import { choose, Pager, usePages } from "../lists/Pager";
import { Section } from "../ui/Section";
import { Empty, Shown } from "../ui/states";

const STATES: TaskState[] = ["running", "queued", "succeeded", "failed", "cancelled"];
const PAGE = 50;
const MOST_OWN_COLUMNS = 4;

export function TasksSection({ job }: { job: JobView }) {
  const [word] = useWord("state");
  const state = STATES.find((one) => one === word) ?? null;
  const pages = usePages("page");
  const tasks = useResource(
    `jobs/${job.id}/tasks/${state}/${pages.cursor}`,
    (signal) =>
      get<Page<TaskView>>(
        `/jobs/${job.id}/tasks`,
        { state, cursor: pages.cursor, limit: PAGE, parameters: true },
        signal,
      ),
    thisJob(job.id),
  );
  return (
    <Section
      title="Tasks"
      aside={<StateFilter job={job} chosen={state} onChoose={(one) => choose("state", one, "page")} />}
    >
      <Shown of={tasks} what="tasks">
        {({ items, next }) =>
          items.length ? (
            <>
              <Cards rows={items} keyOf={(task) => task.number} columns={columnsOf(job.id, items)} />
              <Pager pages={pages} next={next} />
            </>
          ) : (
            <Empty>No task is {state ?? "here"}.</Empty>
          )
        }
      </Shown>
    </Section>
  );
}

interface FilterProps {
  job: JobView;
  chosen: TaskState | null;
  onChoose: (state: TaskState | null) => void;
}

function StateFilter({ job, chosen, onChoose }: FilterProps) {
  return (
    <div class="buttons joined" role="group" aria-label="State">
      <Button isPressed={chosen === null} onClick={() => onChoose(null)}>
        all <span class="number faint">{count(job.task_count)}</span>
      </Button>
      {STATES.filter((state) => job.tasks[state] || state === chosen).map((state) => (
        <Button key={state} isPressed={chosen === state} onClick={() => onChoose(state)}>
          {state} <span class="number faint">{numberOf(job, state)}</span>
        </Button>
      ))}
    </div>
  );
}

/** How many tasks are in a state; of those that a worker has, how many only wait there. */
function numberOf(job: JobView, state: TaskState): string {
  const number = job.tasks[state] ?? 0;
  const prefetched = state === "running" ? (job.tasks.prefetched ?? 0) : 0;
  return prefetched ? `${count(number - prefetched)}, ${count(prefetched)} prefetched` : count(number);
}

function TaskChip({ task }: { task: TaskView }) {
  if (!task.prefetched) return <Chip state={task.state} />;
  return (
    <span class="faint" title="It waits at its worker for a slot">
      prefetched
    </span>
  );
}

/** How long the attempt took that the row is about. */
function tookOf(task: TaskView): string {
  return task.wall_s == null ? between(task.began_at ?? null, task.finished_at, now.value) : duration(task.wall_s);
}

type Named = Record<string, string | number | boolean> | null | undefined;

/** A column for each name, to sort by; of many names, one that has them all. */
function columnsFor(title: string, tasks: TaskView[], of: (task: TaskView) => Named): Column<TaskView>[] {
  const names = [...new Set(tasks.flatMap((task) => Object.keys(of(task) ?? {})))];
  if (names.length <= MOST_OWN_COLUMNS)
    return names.map((name) => ({
      name,
      class: "number",
      show: (task) => shown(of(task)?.[name]),
      order: (task) => ordered(of(task)?.[name]),
    }));
  const all = (task: TaskView): string =>
    Object.entries(of(task) ?? {})
      .map(([name, value]) => `${name}=${shown(value)}`)
      .join(" ");
  return [{ name: title, class: "reason", show: all, title: all }];
}

const shown = (value: string | number | boolean | undefined): string => (value === undefined ? "–" : String(value));

const ordered = (value: string | number | boolean | undefined): string | number | null =>
  typeof value === "boolean" ? Number(value) : (value ?? null);

const columnsOf = (job: number, tasks: TaskView[]): Column<TaskView>[] => [
  {
    name: "Task",
    show: (task) => (
      <Link to={`/jobs/${job}/tasks/${task.number}`} class="number">
        {task.id}
      </Link>
    ),
  },
  ...columnsFor("Parameters", tasks, (task) => task.parameters),
  { name: "State", show: (task) => <TaskChip task={task} /> },
  {
    name: "Worker",
    show: ({ worker }) => (worker ? <Link to={`/workers/${worker}`}>{worker}</Link> : <span class="faint">–</span>),
  },
  { name: "Took", class: "right number", show: tookOf, order: (task) => task.wall_s },
  ...columnsFor("Metrics", tasks, (task) => task.metrics),
  { name: "Exit", class: "right number", show: (task) => task.exit_code ?? "–" },
  { name: "Failures", class: "right number", show: (task) => task.failures || "–" },
  { name: "Reason", class: "reason", show: (task) => task.reason },
];
