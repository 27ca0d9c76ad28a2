/** Rows of the chart: one for each slot of a worker. Attempts that overlap lie in lanes of their own. */
import type { Bars } from "./bars";

/** Clocks of frames: so much later than the next one's start may an end be put down. */
const TOLERANCE_S = 0.05;

/** Bars of one row do not overlap: they are in the order of their starts, and of their ends. */
export interface Row {
  worker: number;
  lane: number;
  bars: number[];
}

/** Of what waits at its worker for a slot, or was called back before it had one: there is nowhere to draw it. */
export const NO_LANE = -1;

/**
 * The lane of each interval, which come by start: the first one that is free by then. `isMinor`: what gets none of its
 * own beyond the first `slots`.
 */
export function pack(
  starts: readonly number[],
  ends: readonly number[],
  isMinor: readonly boolean[] = [],
  slots = 1,
): number[] {
  const freeAt: number[] = [];
  return starts.map((start, place) => {
    let lane = freeAt.findIndex((end) => end <= start + TOLERANCE_S);
    if (lane < 0 && isMinor[place] && freeAt.length >= slots) return NO_LANE;
    if (lane < 0) lane = freeAt.push(-Infinity) - 1;
    freeAt[lane] = ends[place]!;
    return lane;
  });
}

/** The rows of one worker: as many as it has slots, and more where more ran at once. */
export function rowsOf(bars: Bars, worker: number, slots: number): Row[] {
  const places = bars.ofWorker[worker] ?? [];
  const lanes = pack(
    places.map((place) => bars.start[place]!),
    places.map((place) => bars.end[place]!),
    places.map((place) => bars.isUnstarted[place]!),
    slots,
  );
  const rows: Row[] = Array.from({ length: Math.max(1, slots) }, (_, lane) => ({ worker, lane, bars: [] }));
  lanes.forEach((lane, at) => {
    if (lane === NO_LANE) return;
    rows[lane] ??= { worker, lane, bars: [] };
    rows[lane].bars.push(places[at]!);
  });
  return rows;
}

/** The first bar of a row that ends after a time. */
export function firstEndingAfter(bars: Bars, row: Row, time: number): number {
  let low = 0;
  let high = row.bars.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (bars.end[row.bars[middle]!]! > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The bar at a time, or within `slack` of it: the nearer one; null: none. */
export function barAt(bars: Bars, row: Row, time: number, slack: number): number | null {
  let best: number | null = null;
  let bestGap = slack;
  for (let at = firstEndingAfter(bars, row, time - slack); at < row.bars.length; at++) {
    const bar = row.bars[at]!;
    if (bars.start[bar]! > time + slack) break;
    const gap = Math.max(bars.start[bar]! - time, time - bars.end[bar]!, 0);
    if (gap <= bestGap && (best === null || gap < bestGap)) [best, bestGap] = [bar, gap];
  }
  return best;
}
