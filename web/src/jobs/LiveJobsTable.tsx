import { now } from "../live/clock";
import { Link } from "../router";
import { maySubmit } from "../session/session";
import { ago } from "../text/human";
import { Progress } from "../ui/Progress";
import { EtaText } from "./EtaText";
import { StateCell } from "./Hold";
import { type LiveJob, sizeOf } from "./jobs";
import { useSteadyOrder } from "./steady";
import { Steering } from "./Steering";
import { Swatch } from "./Swatch";

interface Props {
  jobs: LiveJob[];
  onDone: () => void;
}

/** The queue: the scheduler turns to the first one first. */
export function LiveJobsTable({ jobs, onDone }: Props) {
  const { items, handlers } = useSteadyOrder(jobs);
  return (
    <div class="scroller">
      <table class="cards">
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            <th scope="col">Progress</th>
            <th scope="col">Done by</th>
            <th scope="col" class="right">
              Size
            </th>
            <th scope="col">User</th>
            <th scope="col">Submitted</th>
            {maySubmit.value && (
              <th scope="col">
                <span class="unseen">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody {...handlers}>
          {items.map((job) => (
            <tr key={job.id}>
              <th scope="row">
                <JobName job={job} />
              </th>
              <td data-name="State">
                <StateCell job={job} />
              </td>
              <td data-name="Progress">
                <Progress tasks={job.tasks} total={job.task_count} />
              </td>
              <td data-name="Done by" title={job.eta_note || undefined}>
                <EtaText eta={job.eta} />
              </td>
              <td data-name="Size" class="right number">
                {sizeOf(job)}
              </td>
              <td data-name="User">{job.owner}</td>
              <td data-name="Submitted" class="number">
                {ago(job.submitted_at, now.value)}
              </td>
              {maySubmit.value && (
                <td class="actions">
                  <Steering job={job} onDone={onDone} />
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function JobName({ job }: { job: { id: number; name: string } }) {
  return (
    <Link to={`/jobs/${job.id}`} class="job-name">
      <Swatch job={job.id} />
      <span class="number">{job.id}</span> <span class="name">{job.name}</span>
    </Link>
  );
}
