import { get } from "../api/client";
import type { PassingReport } from "../api/types";
import { anyJob, useResource } from "../live/resource";
import { SpareCpuSection } from "../workers/SpareCpuSection";
import { count } from "../text/human";
import { Shown } from "../ui/states";
import { Tally } from "../ui/Tally";
import { Exemptions } from "./Exemptions";
import { LedgerSection } from "./LedgerSection";
import { ParallelSection } from "./ParallelSection";
import { PromisesSection } from "./PromisesSection";

const ORDERS: Record<string, string> = {
  hold: "A job’s last task starts only after the jobs have completed that it must not pass.",
  deliver: "A job is computed freely; it completes only after the jobs that it must not pass.",
  none: "No order is guaranteed for jobs submitted now.",
};

/** Is the order kept, where does it not apply, and are the replicas worth it. */
export function GuaranteePage() {
  const audit = useResource("passing", (signal) => get<PassingReport>("/passing", {}, signal), anyJob);
  return (
    <>
      <h1>The order guarantee</h1>
      <p class="lead">
        A later job that is at least as large never completes before an earlier one, whatever the machines do. Each
        completion is checked against the stored rows, by a query that knows nothing of the scheduler.
      </p>
      <Shown of={audit} what="the audit">
        {(report) => (
          <>
            <Verdict report={report} />
            <Exemptions report={report} />
          </>
        )}
      </Shown>
      <PromisesSection />
      <ParallelSection />
      <LedgerSection />
      <SpareCpuSection title="Use of spare CPU" path="/samples" />
    </>
  );
}

function Verdict({ report }: { report: PassingReport }) {
  const excused = Object.values(report.excused).reduce((sum, pairs) => sum + pairs, 0);
  return (
    <>
      <dl class="tallies">
        <Tally label="Completions checked" value={count(report.completions)} />
        <Tally
          label="Passings"
          value={count(report.passings)}
          tone={report.passings ? "bad" : "good"}
          note={report.passings ? "a bug: please report it" : "as guaranteed"}
        />
        <Tally label="Exempt pairs" value={count(excused)} note="allowed, each on record" />
        <Tally label="In force" value={report.order} />
      </dl>
      <p class="faint">{ORDERS[report.order]}</p>
    </>
  );
}
