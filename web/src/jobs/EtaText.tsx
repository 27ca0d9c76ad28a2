import type { Eta } from "../api/types";
import { now } from "../live/clock";
import { duration, moment, percent, shortMoment } from "../text/human";

/** When a job will be over: as likely as not by the first, in nine of ten cases by the second; or why nobody can tell. */
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

/** What it means, what it rests on, and how far such forecasts were right until now. */
export function wordsOf(eta: Eta): string {
  const range = `as likely as not by ${moment(eta.p50_at)}, in nine of ten cases by ${moment(eta.p90_at)}`;
  return [range, eta.based_on, heldUntilNow(eta)].filter(Boolean).join("; ");
}

function heldUntilNow({ judged, p50_held, p90_held }: Eta): string {
  if (!judged || typeof p50_held !== "number" || typeof p90_held !== "number") return "";
  const [half, most] = [percent(p50_held, 1), percent(p90_held, 1)];
  return `of ${judged} jobs so far ${half} were over by the first time that they were told, ${most} by the second`;
}
