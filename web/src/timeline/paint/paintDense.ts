/**
 * Paints one row for each worker: how much of it was taken at each pixel of time, in the colour of a job that it ran
 * then. Work per frame follows the bars in the window and the pixels that they cover.
 */
import type { Brush, Rects } from "./brush";
import { colourOf } from "./colours";
import { AXIS_PX, type Layout, type Scale } from "../scene/layout";
import type { Picture } from "./picture";
import { firstEndingAfter, type Row } from "../scene/rows";
import { Look } from "../scene/bars";
import type { Group } from "../scene/scene";

const LOST = -1;

export function paintDense(picture: Picture, scale: Scale, brush: Brush): void {
  const { layout, scene, scheme, scrolled } = picture;
  const byColour = new Map<string, Rects>();
  const columns = new Columns(layout);
  for (const group of scene.groups) {
    const y = AXIS_PX + layout.tops[group.firstRow]! - scrolled;
    if (y + layout.rowPx < AXIS_PX || y > AXIS_PX + layout.viewPx) continue;
    columns.clear();
    for (let at = 0; at < group.rowCount; at++) addRow(picture, scale, scene.rows[group.firstRow + at]!, columns);
    columns.runs(heightsOf(group, layout), (left, width, job, height) => {
      const colour = job === LOST ? scheme.lost : colourOf(scheme, job);
      let rects = byColour.get(colour);
      if (!rects) byColour.set(colour, (rects = []));
      rects.push(left, y + layout.rowPx - height, width, height);
    });
  }
  byColour.forEach((rects, colour) => brush.rects(colour, rects));
}

/** Pixels by the number of slots that are taken: one at least, whole ones, and where a row is tall, a line less. */
function heightsOf({ rowCount }: Group, { rowPx }: Layout): number[] {
  const most = rowPx - (rowPx > 4 ? 1 : 0);
  const part = (taken: number): number => Math.max(1, Math.round((most * taken) / rowCount));
  return [0, ...Array.from({ length: rowCount }, (_, place) => part(place + 1))];
}

function addRow({ scene: { bars }, window, now, layout }: Picture, scale: Scale, row: Row, columns: Columns): void {
  for (let at = firstEndingAfter(bars, row, window.since); at < row.bars.length; at++) {
    const bar = row.bars[at]!;
    const start = bars.start[bar]!;
    if (start > window.until) break;
    const end = Math.min(bars.end[bar]!, Math.max(now, start));
    const left = Math.max(layout.gutter, Math.round(scale.x(start)));
    const right = Math.min(layout.width, Math.max(left + 1, Math.round(scale.x(end))));
    columns.add(left, right, bars.look[bar] === Look.Lost ? LOST : bars.job[bar]!);
  }
}

/** For each pixel of time: how many slots are taken, and by which job the first of them. */
class Columns {
  private readonly taken: Uint16Array;
  private readonly job: Int32Array;

  constructor(private readonly layout: Layout) {
    this.taken = new Uint16Array(Math.ceil(layout.width) + 1);
    this.job = new Int32Array(Math.ceil(layout.width) + 1);
  }

  clear(): void {
    this.taken.fill(0);
  }

  add(left: number, right: number, job: number): void {
    for (let x = left; x < right; x++) {
      if (!this.taken[x]!++) this.job[x] = job;
    }
  }

  /** Neighbours that look alike are one rectangle. More bars than slots, as at the end of one, fill the row. */
  runs(heights: number[], put: (left: number, width: number, job: number, height: number) => void): void {
    const { taken, job } = this;
    const heightAt = (x: number): number => heights[Math.min(taken[x]!, heights.length - 1)]!;
    for (let left = this.layout.gutter; left < this.layout.width;) {
      const height = heightAt(left);
      let right = left + 1;
      while (right < this.layout.width && heightAt(right) === height && (!height || job[right] === job[left]))
        right++;
      if (height) put(left, right - left, job[left]!, height);
      left = right;
    }
  }
}
