/** Ticks of the time axis, on round times of the viewer's zone. */

const STEPS_S = [
  1,
  2,
  5,
  10,
  15,
  30,
  60,
  120,
  300,
  600,
  900,
  1800,
  3600,
  7200,
  10800,
  21600,
  43200,
  86400,
  2 * 86400,
  7 * 86400,
  14 * 86400,
  28 * 86400,
  84 * 86400,
];

export interface Tick {
  at: number;
  label: string;
  /** It is midnight: the label is a day. */
  isDay: boolean;
}

export function ticks(since: number, until: number, widthPx: number, apartPx = 90): Tick[] {
  const finest = ((until - since) * apartPx) / Math.max(1, widthPx);
  const step = STEPS_S.find((candidate) => candidate >= finest) ?? STEPS_S.at(-1)!;
  const found: Tick[] = [];
  for (let at = firstAfter(since, step); at <= until; at = next(at, step)) {
    found.push(labelled(at, step));
  }
  return found;
}

/** Counted from local midnight, so that ticks of an hour are on the hour wherever the viewer is. */
function firstAfter(since: number, step: number): number {
  const midnight = midnightOf(since);
  return step >= 86400 ? next(midnight - step, step) : midnight + Math.ceil((since - midnight) / step) * step;
}

/** Days are counted by the calendar: some have 23 hours. */
function next(at: number, step: number): number {
  if (step < 86400) return at + step;
  const date = new Date(at * 1000);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() + step / 86400).getTime() / 1000;
}

function midnightOf(time: number): number {
  const date = new Date(time * 1000);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime() / 1000;
}

function labelled(at: number, step: number): Tick {
  const date = new Date(at * 1000);
  const isDay = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
  const clock = [date.getHours(), date.getMinutes(), ...(step < 60 ? [date.getSeconds()] : [])];
  const label = isDay
    ? date.toLocaleDateString(undefined, { day: "numeric", month: "short" })
    : clock.map((part) => String(part).padStart(2, "0")).join(":");
  return { at, label, isDay };
}
