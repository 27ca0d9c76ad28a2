/** The columns of a table of tasks: parameters and metrics each have their own. */
import { now } from "../../live/clock";
import type { Column } from "../../lists/Cards";
import { Link } from "../../router";
import { Chip } from "../../ui/Chip";
import { tookOfTask } from "../../tasks/runs";
import { namesIn, type Scalar, shown, type SweepRow } from "./rows";

const MOST_OWN_COLUMNS = 6;

type Named = Record<string, Scalar> | null | undefined;

export const columnsOf = (job: number, tasks: SweepRow[]): Column<SweepRow>[] => [
  {
    name: "Task",
    show: (task) => (
      <Link to={`/jobs/${job}/tasks/${task.number}`} class="number">
        {task.id}
      </Link>
    ),
    order: (task) => task.number,
  },
  ...columnsFor("parameter", tasks, (task) => task.parameters),
  { name: "State", show: (task) => <TaskChip task={task} />, order: (task) => task.state },
  {
    name: "Worker",
    show: ({ worker }) => (worker ? <Link to={`/workers/${worker}`}>{worker}</Link> : <span class="faint">–</span>),
    order: (task) => task.worker,
  },
  { name: "Took", class: "right number", show: (task) => tookOfTask(task, now.value), order: (task) => task.wall_s },
  ...columnsFor("metric", tasks, (task) => task.metrics),
  { name: "Exit", class: "right number", show: (task) => task.exit_code ?? "–", order: (task) => task.exit_code },
  { name: "Failures", class: "right number", show: (task) => task.failures || "–", order: (task) => task.failures },
  { name: "Reason", class: "reason", show: (task) => task.reason },
];

/** A column for each name, to sort by; what is beyond the first names shares one. Numbers stand below each other. */
function columnsFor(
  kind: "parameter" | "metric",
  tasks: SweepRow[],
  of: (task: SweepRow) => Named,
): Column<SweepRow>[] {
  const names = namesIn(tasks, of);
  const own = names.length <= MOST_OWN_COLUMNS ? names : names.slice(0, MOST_OWN_COLUMNS - 1);
  const columns = own.map((name): Column<SweepRow> => {
    const isNumber = tasks.every((task) => ["number", "undefined"].includes(typeof of(task)?.[name]));
    return {
      name,
      id: `${kind}:${name}`,
      class: isNumber ? "right number" : "number",
      about: `${kind === "metric" ? "a number that the task left" : "a parameter of the sweep"}: ${name}`,
      show: (task) => shown(of(task)?.[name]),
      title: (task) => titleOf(of(task)?.[name]),
      order: (task) => ordered(of(task)?.[name]),
    };
  });
  const others = names.slice(own.length);
  return others.length ? [...columns, columnOfOthers(kind, others, of)] : columns;
}

function columnOfOthers(
  kind: "parameter" | "metric",
  names: string[],
  of: (task: SweepRow) => Named,
): Column<SweepRow> {
  const all = (task: SweepRow): string => names.map((name) => `${name}=${shown(of(task)?.[name])}`).join(" ");
  return { name: `Other ${kind}s`, class: "reason", show: all, title: all };
}

/** The whole of a number of which the cell has six digits. */
const titleOf = (value: Scalar | undefined): string | undefined =>
  value !== undefined && shown(value) !== String(value) ? String(value) : undefined;

const ordered = (value: Scalar | undefined): string | number | null =>
  typeof value === "boolean" ? Number(value) : (value ?? null);

function TaskChip({ task }: { task: SweepRow }) {
  if (!task.prefetched) return <Chip state={task.state} />;
  return (
    <span class="faint" title="It waits at its worker for a slot">
      prefetched
    </span>
  );
}
