/** Positions of rows on the chart in pixels, and the row at a pixel. */
import type { JobRow, Scene } from "./scene";
import type { Window } from "./window";

export const AXIS_PX = 24;
const TALLEST_ROW_PX = 24;
const SHORTEST_ROW_PX = 5;
const TALLEST_JOB_PX = 11;
const SHORTEST_JOB_PX = 5;
const MOST_FOR_JOBS = 0.3; // of the height
const JOBS_GAP_PX = 22;

export interface Layout {
  width: number;
  height: number;
  gutter: number; // left of the chart: names
  rowPx: number;
  gapPx: number; // between workers
  tops: number[]; // of each row, from the first one's
  rowsPx: number; // height of all rows
  viewPx: number; // height of what of them is seen
  jobsTop: number;
  jobCount: number; // of the latest jobs: as many as there is room for
  jobPx: number;
}

/** Lays out the chart in at most `height`; fewer rows take less. */
export function layOut(scene: Scene, width: number, height: number): Layout {
  const gutter = width < 600 ? 76 : 132;
  const jobCount = Math.min(scene.jobs.length, Math.floor((height * MOST_FOR_JOBS) / SHORTEST_JOB_PX));
  const jobPx = fit(height * MOST_FOR_JOBS, jobCount, SHORTEST_JOB_PX, TALLEST_JOB_PX);
  const jobsPx = jobCount ? jobCount * jobPx + JOBS_GAP_PX : 0;
  const roomPx = Math.max(60, height - AXIS_PX - jobsPx);
  const units = scene.rows.length + scene.groups.length * 0.3;
  const rowPx = fit(roomPx, units, SHORTEST_ROW_PX, TALLEST_ROW_PX);
  const gapPx = Math.max(1, Math.round(rowPx * 0.3));
  const tops = rowTops(scene, rowPx, gapPx);
  const rowsPx = (tops.at(-1) ?? 0) + rowPx + gapPx;
  const viewPx = Math.min(roomPx, rowsPx);
  const jobsTop = AXIS_PX + viewPx + JOBS_GAP_PX;
  const whole = AXIS_PX + viewPx + jobsPx;
  return { width, height: whole, gutter, rowPx, gapPx, tops, rowsPx, viewPx, jobsTop, jobCount, jobPx };
}

function fit(room: number, count: number, least: number, most: number): number {
  return Math.max(least, Math.min(most, Math.floor(room / Math.max(1, count))));
}

function rowTops(scene: Scene, rowPx: number, gapPx: number): number[] {
  const tops: number[] = [];
  let top = Math.floor(gapPx / 2); // on whole pixels
  for (const group of scene.groups) {
    for (let row = 0; row < group.rowCount; row++) {
      tops.push(top);
      top += rowPx;
    }
    top += gapPx;
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

/** The row at a pixel; -1: none. `scrolled`: how far the rows are moved up. */
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

/** The jobs that have rows. */
export const jobsShown = (scene: Scene, layout: Layout): JobRow[] =>
  scene.jobs.slice(scene.jobs.length - layout.jobCount);

/** The job whose row lies at a pixel. */
export function jobAt(scene: Scene, layout: Layout, y: number): JobRow | undefined {
  return jobsShown(scene, layout)[Math.floor((y - layout.jobsTop) / layout.jobPx)];
}
