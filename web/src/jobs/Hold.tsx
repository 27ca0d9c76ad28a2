import type { JobView } from "../api/types";
import { Link } from "../router";
import { plural } from "../text/human";
import { Chip } from "../ui/Chip";
import { type LiveJob, waitsFor } from "./jobs";

const MOST_NAMED = 3;

/** A job's state, with the job that is the reason for it, if any. */
export function StateCell({ job }: { job: LiveJob }) {
  const others = waitsFor(job);
  return (
    <span class="state-cell">
      <Chip state={job.condition} />
      <Differing job={job} />
      {others.length > 0 && (
        <span class="faint">
          waits for <JobLinks jobs={others} />
        </span>
      )}
    </span>
  );
}

export function JobLinks({ jobs }: { jobs: number[] }) {
  return (
    <>
      {jobs.slice(0, MOST_NAMED).map((job, place) => (
        <span key={job}>
          {place > 0 && ", "}
          <Link to={`/jobs/${job}`}>job {job}</Link>
        </span>
      ))}
      {jobs.length > MOST_NAMED && ` and ${jobs.length - MOST_NAMED} more`}
    </>
  );
}

/** Marks tasks with contradictory results. */
export function Differing({ job }: { job: JobView }) {
  if (!job.mismatches) return null;
  return <Chip state="mismatch">{plural(job.mismatches, "task")} with different results</Chip>;
}
