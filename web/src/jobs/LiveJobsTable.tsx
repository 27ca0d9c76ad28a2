import { now } from "../live/clock";
import { Link } from "../router";
import { ago } from "../text/human";
import type { Column } from "../lists/Cards";
import { Progress } from "../ui/Progress";
import { EtaText } from "./EtaText";
import { StateCell } from "./Hold";
import { type LiveJob, sizeOf } from "./jobs";
import type { Sorting } from "../lists/sorting";
import { useSteadyOrder } from "../lists/steady";
import { SteeredJobs } from "./SteeredJobs";
import { Swatch } from "../ui/Swatch";

interface Props {
  jobs: LiveJob[];
  sorting: Sorting;
  onDone: () => void;
}

/** The queue, sorted by a column; by none, the scheduler turns to the first one first. */
export function LiveJobsTable({ jobs, sorting, onDone }: Props) {
  const { items, handlers } = useSteadyOrder(jobs);
  return <SteeredJobs jobs={items} columns={COLUMNS} sorting={sorting} body={handlers} onDone={onDone} />;
}

export const COLUMNS: Column<LiveJob>[] = [
  { name: "Job", order: ({ id }) => id, show: (job) => <JobName job={job} /> },
  { name: "State", order: ({ condition }) => condition, show: (job) => <StateCell job={job} /> },
  {
    name: "Progress",
    order: ({ tasks, task_count }) => (tasks.succeeded ?? 0) / task_count,
    show: (job) => <Progress tasks={job.tasks} total={job.task_count} />,
  },
  {
    name: "ETA",
    order: ({ eta }) => eta?.p50_at,
    title: (job) => job.eta_note || undefined,
    show: (job) => <EtaText eta={job.eta} />,
  },
  { name: "Size", order: ({ size }) => size, class: "right number", show: sizeOf },
  { name: "User", order: ({ user }) => user, show: (job) => job.user },
  {
    name: "Submitted",
    order: (job) => job.submitted_at,
    class: "number",
    show: (job) => ago(job.submitted_at, now.value),
  },
];

export function JobName({ job }: { job: { id: number; name: string } }) {
  return (
    <Link to={`/jobs/${job.id}`} class="job-name">
      <Swatch job={job.id} />
      <span class="number">{job.id}</span> <span class="name">{job.name}</span>
    </Link>
  );
}
