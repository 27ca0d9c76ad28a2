import { now } from "../live/clock";
import { Link } from "../router";
import { ago } from "../text/human";
import type { Column } from "../lists/Cards";
import { Progress } from "../ui/Progress";
import { EtaText } from "./EtaText";
import { StateCell } from "./Hold";
import { type LiveJob, sizeOf } from "./jobs";
import { useSteadyOrder } from "../lists/steady";
import { SteeredJobs } from "./SteeredJobs";
import { Swatch } from "../ui/Swatch";

interface Props {
  jobs: LiveJob[];
  onDone: () => void;
}

/** The queue: the scheduler turns to the first one first. */
export function LiveJobsTable({ jobs, onDone }: Props) {
  const { items, handlers } = useSteadyOrder(jobs);
  return <SteeredJobs jobs={items} columns={COLUMNS} body={handlers} onDone={onDone} />;
}

const COLUMNS: Column<LiveJob>[] = [
  { name: "Job", show: (job) => <JobName job={job} /> },
  { name: "State", show: (job) => <StateCell job={job} /> },
  { name: "Progress", show: (job) => <Progress tasks={job.tasks} total={job.task_count} /> },
  { name: "ETA", title: (job) => job.eta_note || undefined, show: (job) => <EtaText eta={job.eta} /> },
  { name: "Size", class: "right number", show: sizeOf },
  { name: "User", show: (job) => job.owner },
  { name: "Submitted", class: "number", show: (job) => ago(job.submitted_at, now.value) },
];

export function JobName({ job }: { job: { id: number; name: string } }) {
  return (
    <Link to={`/jobs/${job.id}`} class="job-name">
      <Swatch job={job.id} />
      <span class="number">{job.id}</span> <span class="name">{job.name}</span>
    </Link>
  );
}
