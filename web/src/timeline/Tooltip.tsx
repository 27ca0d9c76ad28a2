/** Facts about the attempt or job under the pointer. */
import type { ComponentChildren } from "preact";
import type { WaitingPlan } from "../api/types";
import { clock, duration, moment } from "../text/human";
import { type Bars, Look } from "./scene/bars";
import type { Chart, Hit } from "./chart";
import type { Pointed } from "./mount";
import type { JobRow } from "./scene/scene";

const WIDTH_PX = 250;
const OFFSET_PX = 14;
/** What takes no longer is not told. */
const SHORT_S = 0.1;

export function Tooltip({ chart, at }: { chart: Chart; at: Pointed }) {
  const body = bodyOf(chart, at.hit);
  if (!body) return null;
  const isLeft = at.x + OFFSET_PX + WIDTH_PX > chart.layout.width;
  const left = isLeft ? Math.max(0, at.x - OFFSET_PX - WIDTH_PX) : at.x + OFFSET_PX;
  return (
    <div
      class="tooltip"
      role="status"
      style={{ left: `${left}px`, top: `${at.y + OFFSET_PX}px`, width: `${WIDTH_PX}px` }}
    >
      {body}
    </div>
  );
}

function bodyOf(chart: Chart, hit: Hit): ComponentChildren {
  if (hit?.kind === "bar") return <BarFacts bars={hit.bars} bar={hit.bar} now={chart.now()} />;
  if (hit?.kind === "plan") return <PlanFacts plan={hit.plan} now={chart.now()} />;
  if (hit?.kind === "job") return <JobFacts job={hit.job} now={chart.now()} />;
  return null;
}

function BarFacts({ bars, bar, now }: { bars: Bars; bar: number; now: number }) {
  const [start, end, job] = [bars.start[bar]!, bars.end[bar]!, bars.job[bar]!];
  const frozen_s = (bars.frozen[bar] ?? []).reduce((sum, [since, until]) => sum + (until ?? now) - since, 0);
  const name = bars.jobNames.get(job);
  return (
    <>
      <p class="tooltip-title">
        Attempt {bars.attempt[bar]}
        {name && <span class="faint"> {name}</span>}
      </p>
      <p>
        {wordOf(bars, bar)}
        {bars.isReplica[bar] && ", a replica"} on {bars.workers[bars.worker[bar]!]}
      </p>
      <p class="faint">
        {moment(start)} {bars.isGuessed[bar] ? "" : end === Infinity ? "until now" : `– ${clock(end)}`}
        <br />
        {bars.isGuessed[bar]
          ? "end unknown: its worker may come back. The end drawn is a guess"
          : duration(Math.min(end, now) - start)}
        {phasesOf(bars, bar)}
        {frozen_s > 0 && `, of which ${duration(frozen_s)} frozen for the owner`}
      </p>
    </>
  );
}

/** What its worker did for it beside its program, as far as is known; moments are left out. */
function phasesOf(bars: Bars, bar: number): string {
  const [start, end, ended, ran] = [bars.start[bar]!, bars.end[bar]!, bars.ended[bar]!, bars.ran[bar]!];
  const began = bars.began[bar] ?? null;
  const waited_s = bars.isUnstarted[bar] ? 0 : start - bars.dispatched[bar]!;
  const frozen_s = (bars.frozen[bar] ?? []).reduce((sum, [since, until]) => sum + (until ?? end) - since, 0);
  const files_s = began !== null || ran === null || ended === Infinity ? 0 : ended - start - ran - frozen_s;
  const parts = [
    began !== null && began > SHORT_S && `${duration(began)} until its inputs were there`,
    (began !== null || files_s > SHORT_S) && ran !== null && `${duration(ran)} for its program`,
    files_s > SHORT_S && `${duration(files_s)} for its files`,
    began !== null && ended - end > SHORT_S && ended < Infinity && `${duration(ended - end)} for its results`,
  ].filter(Boolean);
  const way = waited_s > SHORT_S ? `; ${duration(waited_s)} on its way there before` : "";
  return (parts.length > 1 ? `: ${parts.join(", ")}` : "") + way;
}

function JobFacts({ job, now }: { job: JobRow; now: number }) {
  const held_s = job.holds.reduce((sum, hold) => sum + (hold.until ?? now) - hold.since, 0);
  return (
    <>
      <p class="tooltip-title">
        Job {job.job} <span class="faint">{job.name}</span>
      </p>
      <p>{duration(Math.min(job.until, now) - job.since)} from its first attempt seen here</p>
      {held_s > 0 && <p class="faint">Its last task was held for {duration(held_s)}.</p>}
    </>
  );
}

function PlanFacts({ plan, now }: { plan: WaitingPlan; now: number }) {
  const word = plan.kind === "promise" ? "Promised to start" : "Estimated to start";
  return (
    <>
      <p class="tooltip-title">
        Job {plan.job} <span class="faint">{plan.name}</span>
      </p>
      <p>
        {word} {plan.start_at! <= now ? "now" : `at ${clock(plan.start_at!)}`} on {plan.machines.join(", ")}
      </p>
      <p class="faint">
        {plan.p50_at && `50 % likely to start by ${clock(plan.p50_at)}; `}
        {plan.limit_is_given ? "limit" : "predicted limit"} {duration(plan.limit_s)}
        {plan.moves > 0 && plan.first_start_at && (
          <>
            <br />
            moved forward {plan.moves === 1 ? "once" : `${plan.moves} times`}; first estimate:{" "}
            {clock(plan.first_start_at)}
          </>
        )}
        {plan.broken_reason && (
          <>
            <br />
            an earlier promise was broken: {plan.broken_reason}
          </>
        )}
      </p>
    </>
  );
}

/** The state in words: a result that another one forestalled is none. */
function wordOf(bars: Bars, bar: number): string {
  const state = bars.state[bar]!;
  if (state === "succeeded" && bars.look[bar] !== Look.Won) return "Succeeded after another attempt";
  return state.charAt(0).toUpperCase() + state.slice(1);
}
