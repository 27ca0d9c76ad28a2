/** Rows of the chart: one for each slot of a worker. What its worker gives no slot is packed: no two overlap. */
import { Bars } from "./bars";

/** Clocks of frames: so much later than the next one's start may an end be put down. */
const TOLERANCE_S = 0.05;

/** Bars of one row do not overlap: they are in the order of their starts, and of their ends. */
export interface Row {
  worker: number;
  lane: number;
  bars: number[];
}

/** The lane of each interval, which come by start: the first one that is free by then. */
export function pack(starts: readonly number[], ends: readonly number[]): number[] {
  const freeAt: number[] = [];
  return starts.map((start, place) => {
    const lane = freeLane(freeAt, start);
    freeAt[lane] = ends[place]!;
    return lane;
  });
}

function freeLane(freeAt: number[], start: number): number {
  for (let lane = 0; lane < freeAt.length; lane++)
    if ((freeAt[lane] ?? -Infinity) <= start + TOLERANCE_S) return lane;
  return freeAt.length;
}

/** The rows of one worker: as many as it has slots, and more where more ran at once. What never began has none. */
export function rowsOf(bars: Bars, worker: number, slots: number): Row[] {
  const rows: Row[] = [];
  const more = (count: number): void => {
    while (rows.length < count) rows.push({ worker, lane: rows.length, bars: [] });
  };
  more(Math.max(1, slots));
  const freeAt: number[] = [];
  for (const bar of bars.ofWorker[worker] ?? []) {
    if (bars.isUnstarted[bar]) continue;
    const slot = bars.slot[bar] ?? null;
    const lane = slot === null ? freeLane(freeAt, bars.start[bar]!) : slot - 1;
    more(lane + 1);
    const before = rows[lane]!.bars.at(-1);
    if (slot !== null && before !== undefined) bars.end[before] = Math.min(bars.end[before]!, bars.start[bar]!);
    rows[lane]!.bars.push(bar);
    freeAt[lane] = bars.end[bar]!;
  }
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
