import type { Eta } from "../api/types";
import { now } from "../live/clock";
import { duration, moment, percent, shortMoment } from "../text/human";

/** Estimated end of a job, with 50 % and 90 % probability; or the reason why there is none. */
export function EtaText({ eta, note }: { eta: Eta | null | undefined; note?: string | undefined }) {
  if (!eta) return <span class="faint">{note || "–"}</span>;
  const [early, late] = [shortMoment(eta.p50_at, now.value), shortMoment(eta.p90_at, now.value)];
  const [least, most] = [eta.p50_at, eta.p90_at].map((at) => duration(Math.max(0, at - now.value)));
  return (
    <span class="number eta" title={wordsOf(eta)}>
      {early === late ? early : `${early} – ${late}`}{" "}
      <span class="faint">in {least === most ? least : `${least} – ${most}`}</span>
    </span>
  );
}

/** Describes an estimate: its meaning, its basis, and the accuracy of past estimates. */
export function wordsOf(eta: Eta): string {
  const range = `50 % likely by ${moment(eta.p50_at)}, 90 % likely by ${moment(eta.p90_at)}`;
  return [range, eta.based_on, heldUntilNow(eta)].filter(Boolean).join("; ");
}

function heldUntilNow({ judged, p50_held, p90_held }: Eta): string {
  if (!judged || typeof p50_held !== "number" || typeof p90_held !== "number") return "";
  const [half, most] = [percent(p50_held, 1), percent(p90_held, 1)];
  return `past estimates of ${judged} jobs: ${half} ended by the 50 % time, ${most} by the 90 % time`;
}
