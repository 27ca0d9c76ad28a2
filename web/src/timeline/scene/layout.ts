/** Positions of rows on the chart in pixels, and the row at a pixel. */
import type { Group, JobRow, Scene } from "./scene";
import type { Window } from "./window";

export const AXIS_PX = 24;
const TALLEST_ROW_PX = 24;
const SHORTEST_ROW_PX = 5;
const SHORTEST_DENSE_PX = 2;
/** From so many screens of rows on workers have one row each, unless it is chosen otherwise. */
const SCREENS_UNTIL_DENSE = 2;
const TALLEST_JOB_PX = 11;
const SHORTEST_JOB_PX = 5;
const MOST_FOR_JOBS = 0.3; // of the height
const JOBS_GAP_PX = 22;

export interface Layout {
  width: number;
  height: number;
  gutter: number; // left of the chart: names
  isDense: boolean; // a worker's rows are one: how full it is, as the height of what is painted
  rowPx: number;
  gapPx: number; // between workers
  tops: number[]; // of each row, from the first one's; where it is dense, those of one worker are the same
  rowsPx: number; // height of all rows
  viewPx: number; // height of what of them is seen
  jobsTop: number;
  jobCount: number; // of the latest jobs: as many as there is room for
  jobPx: number;
}

/** How workers are shown: a row for each slot, or dense, a row for each worker; null: as their number suggests. */
export type Density = "slots" | "workers" | null;

/** Lays out the chart in at most `height`; fewer rows take less. */
export function layOut(scene: Scene, width: number, height: number, density: Density = null): Layout {
  const gutter = width < 600 ? 76 : 132;
  const jobCount = Math.min(scene.jobs.length, Math.floor((height * MOST_FOR_JOBS) / SHORTEST_JOB_PX));
  const jobPx = fit(height * MOST_FOR_JOBS, jobCount, SHORTEST_JOB_PX, TALLEST_JOB_PX);
  const jobsPx = jobCount ? jobCount * jobPx + JOBS_GAP_PX : 0;
  const roomPx = Math.max(60, height - AXIS_PX - jobsPx);
  const isTall = scene.rows.length * SHORTEST_ROW_PX > SCREENS_UNTIL_DENSE * roomPx;
  const isDense = density === null ? isTall && scene.rows.length > scene.groups.length : density === "workers";
  const units = isDense ? scene.groups.length : scene.rows.length + scene.groups.length * 0.3;
  const rowPx = fit(roomPx, units, isDense ? SHORTEST_DENSE_PX : SHORTEST_ROW_PX, TALLEST_ROW_PX);
  const gapPx = isDense ? 0 : Math.max(1, Math.round(rowPx * 0.3));
  const tops = rowTops(scene, rowPx, gapPx, isDense);
  const rowsPx = (tops.at(-1) ?? 0) + rowPx + gapPx;
  const viewPx = Math.min(roomPx, rowsPx);
  const jobsTop = AXIS_PX + viewPx + JOBS_GAP_PX;
  const whole = AXIS_PX + viewPx + jobsPx;
  return { width, height: whole, gutter, isDense, rowPx, gapPx, tops, rowsPx, viewPx, jobsTop, jobCount, jobPx };
}

function fit(room: number, count: number, least: number, most: number): number {
  return Math.max(least, Math.min(most, Math.floor(room / Math.max(1, count))));
}

function rowTops(scene: Scene, rowPx: number, gapPx: number, isDense: boolean): number[] {
  const tops: number[] = [];
  let top = Math.floor(gapPx / 2); // on whole pixels
  for (const group of scene.groups) {
    for (let row = 0; row < group.rowCount; row++) {
      tops.push(top);
      if (!isDense) top += rowPx;
    }
    top += isDense ? rowPx : gapPx;
  }
  return tops;
}

/** Time to pixels, and back. */
export class Scale {
  readonly perSecond: number;

  constructor(
    readonly window: Window,
    readonly layout: Layout,
  ) {
    this.perSecond = (layout.width - layout.gutter) / (window.until - window.since);
  }

  x(time: number): number {
    return this.layout.gutter + (time - this.window.since) * this.perSecond;
  }

  time(x: number): number {
    return this.window.since + (x - this.layout.gutter) / this.perSecond;
  }
}

/** The height of a worker's rows. */
export const groupPx = (layout: Layout, group: Group): number => (layout.isDense ? 1 : group.rowCount) * layout.rowPx;

/** The row at a pixel; -1: none. Of a worker that has one row, its last. `scrolled`: how far the rows are moved up. */
export function rowAt(layout: Layout, y: number, scrolled: number): number {
  const inside = y - AXIS_PX + scrolled;
  if (y < AXIS_PX || y > AXIS_PX + layout.viewPx) return -1;
  let low = 0;
  let high = layout.tops.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (layout.tops[middle]! <= inside) low = middle + 1;
    else high = middle;
  }
  const row = low - 1;
  return row >= 0 && inside < layout.tops[row]! + layout.rowPx ? row : -1;
}

/** The place of the worker whose rows are nearest to a pixel. */
export function groupAt(scene: Scene, layout: Layout, y: number, scrolled: number): number {
  const inside = Math.max(0, Math.min(layout.viewPx, y - AXIS_PX)) + scrolled;
  const after = scene.groups.findIndex((group) => (layout.tops[group.firstRow] ?? 0) > inside);
  return Math.max(0, (after < 0 ? scene.groups.length : after) - 1);
}

/** The jobs that have rows. */
export const jobsShown = (scene: Scene, layout: Layout): JobRow[] =>
  scene.jobs.slice(scene.jobs.length - layout.jobCount);

/** The job whose row lies at a pixel. */
export function jobAt(scene: Scene, layout: Layout, y: number): JobRow | undefined {
  return jobsShown(scene, layout)[Math.floor((y - layout.jobsTop) / layout.jobPx)];
}
