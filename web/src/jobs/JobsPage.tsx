import { useState } from "preact/hooks";
import { Link } from "../router";
import { maySubmit } from "../session/session";
import { count, plural } from "../text/human";
import { Button } from "../ui/Button";
import { Section } from "../ui/Section";
import { Empty, Shown } from "../ui/states";
import { FinishedJobs } from "./FinishedJobs";
import { isWaiting, type LiveJob, useLiveJobs } from "./jobs";
import { LiveJobsTable } from "./LiveJobsTable";

export function JobsPage() {
  return (
    <>
      <h1>Jobs</h1>
      <QueueSection most={200} />
      <FinishedJobs />
    </>
  );
}

/** Jobs that are not over, in the scheduler's order: the first `most`, and more when asked for. */
export function QueueSection({ most }: { most: number }) {
  const [isWhole, setWhole] = useState(false);
  const live = useLiveJobs();
  const aside = live.data && live.data.length > 0 && <span class="faint">{orderOf(live.data)}</span>;
  return (
    <Section title="Queue" aside={aside}>
      <Shown of={live} what="the queue">
        {(jobs) =>
          jobs.length ? (
            <>
              <LiveJobsTable jobs={isWhole ? jobs : jobs.slice(0, most)} onDone={live.reload} />
              {jobs.length > most && !isWhole && (
                <Button onClick={() => setWhole(true)}>Show all {jobs.length}</Button>
              )}
            </>
          ) : (
            <NoJobs />
          )
        }
      </Shown>
    </Section>
  );
}

function orderOf(jobs: LiveJob[]): string {
  const waiting = jobs.filter(isWaiting).length;
  const order = `${plural(jobs.length - waiting, "job")} in the grid, in the order in which the scheduler turns to them`;
  return waiting ? `${order}; ${count(waiting)} outside, for others to succeed` : order;
}

function NoJobs() {
  return (
    <Empty>
      <p>Nothing is queued and nothing runs.</p>
      <p class="faint">
        {maySubmit.value && <Link to="/submit">Submit a job here</Link>}
        {maySubmit.value && ", or from a terminal: "}
        <code>loopline submit -- hostname</code>
      </p>
    </Empty>
  );
}
