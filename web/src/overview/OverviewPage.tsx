import { get } from "../api/client";
import type { PassingReport } from "../api/types";
import { QueueSection } from "../jobs/JobsPage";
import { useLiveJobs } from "../jobs/jobs";
import { anyJob, useResource } from "../live/resource";
import { Link } from "../router";
import { Gantt } from "../timeline/Gantt";
import { count, decimal, percent, plural } from "../text/human";
import { Section } from "../ui/Section";
import { Tally } from "../ui/Tally";
import { NoWorkers } from "../workers/NoWorkers";
import { totals, useWorkers } from "../workers/workers";

const SPAN_S = 900;
const GANTT_PX = 380;

/** The overview: running tasks, the head of the queue, and the state of the order guarantee. */
export function OverviewPage() {
  const workers = useWorkers();
  return (
    <>
      <h1 class="unseen">Overview</h1>
      {workers.data?.length === 0 && (
        <Section title="Add a worker first">
          <NoWorkers />
        </Section>
      )}
      <Tallies />
      <Section title="The last quarter of an hour" aside={<Link to="/timeline">any window, zoom, export</Link>}>
        <Gantt span={SPAN_S} maxHeight={GANTT_PX} />
      </Section>
      <QueueSection most={15} />
    </>
  );
}

function Tallies() {
  const workers = useWorkers();
  const jobs = useLiveJobs();
  const audit = useResource("passing", (signal) => get<PassingReport>("/passing", {}, signal), anyJob);
  const sum = totals(workers.data ?? []);
  const live = jobs.data?.totals;
  return (
    <dl class="tallies">
      <Tally label="Workers" value={workers.data ? sum.connected : "–"} note={`${sum.inUse} in use by owners`} />
      <Tally
        label="Slots in use"
        value={workers.data ? sum.used : "–"}
        note={sum.slots ? `of ${sum.slots}, ${percent(sum.used, sum.slots)}` : "none offered"}
      />
      <Tally label="Spare CPU" value={workers.data ? decimal(sum.spareCpu) : "–"} note="cores" />
      <Tally
        label="Jobs in the grid"
        value={live ? count(live.in_grid) : "–"}
        note={
          (live?.held ? `${count(live.held)} held` : "none held") +
          (live?.waiting ? `, ${count(live.waiting)} waiting for others` : "")
        }
      />
      <Tally label="Tasks waiting" value={live ? count(live.tasks_queued) : "–"} />
      <Tally
        label="Passings"
        value={audit.data ? count(audit.data.passings) : "–"}
        tone={audit.data && (audit.data.passings ? "bad" : "good")}
        note={<Link to="/guarantee">{plural(audit.data?.completions ?? 0, "completion")} checked</Link>}
      />
    </dl>
  );
}
