import type { JobView } from "../api/types";
import { Link } from "../router";
import { plural } from "../text/human";
import { Chip } from "../ui/Chip";
import { standing } from "./jobs";
import type { LiveJob } from "./jobs";

const MOST_NAMED = 3;

/** A job's state, and where another job is the reason, which one. */
export function Standing({ job }: { job: LiveJob }) {
  const others = job.heldBy !== null ? [job.heldBy] : (job.waiting_for ?? []);
  return (
    <span class="standing">
      <Chip state={standing(job)} />
      <Differing job={job} />
      {others.length > 0 && !job.paused && (
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

/** Results of one task that contradict each other: somebody should look. */
export function Differing({ job }: { job: JobView }) {
  if (!job.mismatches) return null;
  return <Chip state="mismatch">{plural(job.mismatches, "task")} with different results</Chip>;
}
