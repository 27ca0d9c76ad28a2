import { Link } from "../router";
import { Chip } from "../ui/Chip";
import { standing } from "./jobs";
import type { LiveJob } from "./jobs";

/** A job's state, and where another job is the reason, which one. */
export function Standing({ job }: { job: LiveJob }) {
  const others = job.heldBy !== null ? [job.heldBy] : (job.waiting_for ?? []);
  return (
    <span class="standing">
      <Chip state={standing(job)} />
      {others.length > 0 && !job.paused && (
        <span class="faint">
          waits for{" "}
          {others.slice(0, 3).map((other, place) => (
            <span key={other}>
              {place > 0 && ", "}
              <Link to={`/jobs/${other}`}>job {other}</Link>
            </span>
          ))}
          {others.length > 3 && ` and ${others.length - 3} more`}
        </span>
      )}
    </span>
  );
}
