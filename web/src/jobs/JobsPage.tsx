import { useState } from "preact/hooks";
import type { LiveTotals } from "../api/types";
import { sorted } from "../lists/sorted";
import { type Sorting, useSorting } from "../lists/sorting";
import { Link } from "../router";
import { maySubmit } from "../session/session";
import { count, plural } from "../text/human";
import { Button } from "../ui/Button";
import { Section } from "../ui/Section";
import { Empty, Shown } from "../ui/states";
import { FailuresSection } from "./over/FailuresSection";
import { FinishedJobs } from "./over/FinishedJobs";
import { allOf, isSearch, type JobFilter, type LiveJobs, useLiveJobs } from "./jobs";
import { JobFinder, useJobFilter } from "./JobFinder";
import { COLUMNS, LiveJobsTable } from "./LiveJobsTable";
import { SharesSection } from "./SharesSection";

export function JobsPage() {
  return (
    <>
      <h1>Jobs</h1>
      <JobFinder />
      <QueueSection most={200} filter={useJobFilter()} />
      <SharesSection />
      <FinishedJobs />
      <FailuresSection />
    </>
  );
}

/** Jobs that are not over, in the scheduler's order: the first `most`, and more when asked for. */
export function QueueSection({ most, filter = {} }: { most: number; filter?: JobFilter }) {
  const live = useLiveJobs(filter);
  const sorting = useSorting("sort");
  const aside = live.data && allOf(live.data.totals) > 0 && (
    <span class="faint">{orderOf(live.data.totals, sorting)}</span>
  );
  return (
    <Section title="Queue" aside={aside}>
      <Shown of={live} what="the queue">
        {(jobs) =>
          jobs.head.length ? (
            <QueueHead jobs={jobs} most={most} sorting={sorting} onDone={live.reload} />
          ) : isSearch(filter) ? (
            <NoneFound />
          ) : (
            <NoJobs />
          )
        }
      </Shown>
    </Section>
  );
}

interface HeadProps {
  jobs: LiveJobs;
  most: number;
  sorting: Sorting;
  onDone: () => void;
}

function QueueHead({ jobs: { head, totals }, most, sorting, onDone }: HeadProps) {
  const [isWhole, setWhole] = useState(false);
  const inOrder = sorted(head, COLUMNS, sorting);
  const shown = isWhole ? inOrder : inOrder.slice(0, most);
  const all = Math.max(head.length, allOf(totals));
  const more = head.length < all ? `the first ${count(head.length)}` : `all ${count(all)}`;
  return (
    <>
      <LiveJobsTable jobs={shown} sorting={sorting} onDone={onDone} />
      {shown.length < all && (
        <p class="faint">
          Showing the first {count(shown.length)} of {count(all)} jobs.
          {sorting.column && head.length < all && ` Sorted are the first ${count(head.length)} of the queue.`}
        </p>
      )}
      {shown.length < head.length && <Button onClick={() => setWhole(true)}>Show {more}</Button>}
    </>
  );
}

function orderOf({ in_grid, waiting }: LiveTotals, sorting: Sorting): string {
  const order = `${plural(in_grid, "job")} in the grid${sorting.column ? "" : ", in scheduling order"}`;
  return waiting ? `${order}; ${count(waiting)} waiting for other jobs to succeed` : order;
}

function NoneFound() {
  return <Empty>No job that is queued or running is such a one.</Empty>;
}

function NoJobs() {
  return (
    <Empty>
      <p>No jobs are queued or running.</p>
      <p class="faint">
        {maySubmit.value && <Link to="/submit">Submit a job here</Link>}
        {maySubmit.value && ", or from a terminal: "}
        <code>loopline submit -- hostname</code>
      </p>
    </Empty>
  );
}
