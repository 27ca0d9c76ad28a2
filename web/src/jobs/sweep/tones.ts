/** Colours of a heat map: of states the page's own, of numbers a scale that grows lighter evenly (viridis). */
import type { TaskState } from "../../api/types";

export const STATES: TaskState[] = ["succeeded", "running", "queued", "failed", "cancelled"];

const VIRIDIS: [number, number, number][] = [
  [68, 1, 84],
  [65, 68, 135],
  [42, 120, 142],
  [34, 168, 132],
  [122, 209, 81],
  [253, 231, 37],
];
const TOKENS: Record<TaskState, string> = {
  succeeded: "--good",
  running: "--busy",
  queued: "--line",
  failed: "--bad",
  cancelled: "--lost",
};

/** The colours of states in the theme that is shown. */
export function stateColours(): Record<TaskState, string> {
  const style = getComputedStyle(document.documentElement);
  const colours = Object.entries(TOKENS).map(([state, token]) => [state, style.getPropertyValue(token).trim()]);
  return Object.fromEntries(colours) as Record<TaskState, string>;
}

/** The colour at a share of the scale, 0 to 1. */
export function toneAt(share: number): string {
  const place = Math.max(0, Math.min(1, share)) * (VIRIDIS.length - 1);
  const low = Math.min(VIRIDIS.length - 2, Math.floor(place));
  const part = place - low;
  const mixed = VIRIDIS[low]!.map((value, at) => Math.round(value + (VIRIDIS[low + 1]![at]! - value) * part));
  return `rgb(${mixed.join(" ")})`;
}

/** Where numbers stand between the least and the largest, by themselves or by their logarithms. */
export interface Scale {
  least: number;
  most: number;
  isLog: boolean;
}

export function scaleOf(values: readonly (number | null)[], isLog: boolean): Scale | null {
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) {
    if (value === null) continue;
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  return least > most ? null : { least, most, isLog: isLog && least > 0 };
}

export function shareOf(value: number, { least, most, isLog }: Scale): number {
  if (most <= least) return 0.5;
  return isLog ? Math.log(value / least) / Math.log(most / least) : (value - least) / (most - least);
}
