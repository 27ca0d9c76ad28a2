import type { Eta } from "../api/types";
import { now } from "../live/clock";
import { duration, moment, shortMoment } from "../text/human";

/** When a job will be over: by half of the forecasts, and by nine in ten. */
export function EtaText({ eta }: { eta: Eta | null | undefined }) {
  if (!eta) return <span class="faint">–</span>;
  const [early, late] = [shortMoment(eta.p50_at, now.value), shortMoment(eta.p90_at, now.value)];
  const title = `in half of the forecasts by ${moment(eta.p50_at)}, in nine of ten by ${moment(eta.p90_at)}`;
  return (
    <span class="number" title={title}>
      {early === late ? early : `${early} – ${late}`}{" "}
      <span class="faint">in {duration(Math.max(0, eta.p50_at - now.value))}</span>
    </span>
  );
}
