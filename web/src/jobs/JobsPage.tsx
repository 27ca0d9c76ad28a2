import { useState } from "preact/hooks";
import { Link } from "../router";
import { maySubmit } from "../session/session";
import { plural } from "../text/human";
import { Button } from "../ui/Button";
import { Section } from "../ui/Section";
import { Empty, Shown } from "../ui/states";
import { FinishedJobs } from "./FinishedJobs";
import { useLiveJobs } from "./jobs";
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

/** Jobs in the grid, in the scheduler's order: the first `most`, and more when asked for. */
export function QueueSection({ most }: { most: number }) {
  const [isWhole, setWhole] = useState(false);
  const live = useLiveJobs();
  const aside = live.data && live.data.length > 0 && (
    <span class="faint">{plural(live.data.length, "job")}, in the order in which the scheduler turns to them</span>
  );
  return (
    <Section title="In the grid" aside={aside}>
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
