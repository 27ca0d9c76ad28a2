/**
 * A job's tasks, by state, a page at a time: also where there are a million.
 *
 * The master hands out pages by number. Once they are sorted or filtered all tasks are read, as columns, and the pages
 * are made here.
 */
import { get } from "../api/client";
import type { JobView, Page, TaskState, TaskView } from "../api/types";
import { Cards } from "../lists/Cards";
import { choose, Pager, type Pages, usePages } from "../lists/Pager";
import { SearchField } from "../lists/SearchField";
import { sorted } from "../lists/sorted";
import { type Sorting, useSorting } from "../lists/sorting";
import { thisJob, useResource } from "../live/resource";
import { useWord } from "../router";
import { count, plural } from "../text/human";
import { Button } from "../ui/Button";
import { Section } from "../ui/Section";
import { Empty, Shown } from "../ui/states";
import { columnsOf } from "./sweep/columns";
import { allNamesIn, MOST_SWEPT, type SweepRow, useSweep } from "./sweep/rows";
import { whereOf } from "./sweep/where";

const STATES: TaskState[] = ["running", "queued", "succeeded", "failed", "cancelled"];
const PAGE = 50;

export function TasksSection({ job }: { job: JobView }) {
  const [word] = useWord("state");
  const [where] = useWord("where");
  const state = STATES.find((one) => one === word) ?? null;
  const pages = usePages("page");
  const sorting = useSorting("sort");
  const isSortable = job.task_count > 1 && job.task_count <= MOST_SWEPT;
  const isWhole = isSortable && (sorting.column !== null || where !== null);
  const view: View = { job, state, pages, sorting: isSortable ? sorting : undefined };
  return (
    <Section
      title="Tasks"
      aside={<StateFilter job={job} chosen={state} onChoose={(one) => choose("state", one, "page")} />}
    >
      {isSortable && (
        <div class="finder" role="search" aria-label="Tasks">
          <SearchField name="where" label="Only tasks for which" placeholder="lr=0.1 loss<0.5" pages="page" />
        </div>
      )}
      {isWhole ? <WholeSweep {...view} where={where ?? ""} /> : <PageOfTasks {...view} />}
      {job.task_count > MOST_SWEPT && (
        <p class="faint">Sweeps of up to {count(MOST_SWEPT)} tasks can be sorted and filtered here.</p>
      )}
    </Section>
  );
}

interface View {
  job: JobView;
  state: TaskState | null;
  pages: Pages;
  /** Undefined where there are too many tasks to sort. */
  sorting: Sorting | undefined;
}

function PageOfTasks({ job, state, pages, sorting }: View) {
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
    <Shown of={tasks} what="tasks">
      {({ items, next }) => <Rows job={job} rows={items} next={next} {...{ state, pages, sorting }} />}
    </Shown>
  );
}

/** Pages of all tasks, which are sorted and filtered here; their cursor is the number of rows before them. */
function WholeSweep({ job, state, pages, sorting, where }: View & { where: string }) {
  const tasks = useSweep(job.id);
  return (
    <Shown of={tasks} what="tasks">
      {(all) => {
        const { test, problem } = whereOf(where, allNamesIn(all));
        const fitting = all.filter((row) => (state === null || row.state === state) && test(row));
        const rows = sorting ? sorted(fitting, columnsOf(job.id, all), sorting) : fitting;
        const start = Number(pages.cursor ?? 0) || 0;
        const next = start + PAGE < rows.length ? String(start + PAGE) : null;
        return (
          <>
            {problem ? (
              <p role="alert" class="note bad">
                {problem}
              </p>
            ) : (
              where && (
                <p class="faint">
                  {plural(rows.length, "task")} of {count(all.length)}.
                </p>
              )
            )}
            <Rows job={job} rows={rows.slice(start, start + PAGE)} next={next} {...{ state, pages, sorting }} />
          </>
        );
      }}
    </Shown>
  );
}

function Rows({ job, rows, next, state, pages, sorting }: View & { rows: SweepRow[]; next: string | null }) {
  if (!rows.length) return <Empty>No task is {state ?? "here"}.</Empty>;
  return (
    <>
      <Cards rows={rows} keyOf={(task) => task.number} columns={columnsOf(job.id, rows)} sorting={sorting} />
      <Pager pages={pages} next={next} />
    </>
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
