/** Paints attempts in their rows. Bars narrower than a pixel are merged: work per frame follows the pixels. */
import { type Bars, Look } from "../scene/bars";
import type { Brush, Rects } from "./brush";
import { colourOf, textOn } from "./colours";
import { AXIS_PX, type Scale } from "../scene/layout";
import type { Picture } from "./picture";
import { firstEndingAfter, type Row } from "../scene/rows";

const FAINT = 0.26;
const PALE = 0.38; // of other jobs while one stands out
const LABEL_FROM_PX = 30;
const LABEL_ROW_FROM_PX = 12;
const MOST_LABELS = 800;
const SHORTEST_WAY_PX = 3;

interface Label {
  text: string;
  x: number;
  y: number;
  colour: string;
}

/** Rectangles by colour, so that the brush changes its colour seldom. */
class Batch {
  private readonly byColour = new Map<string, Rects>();

  add(colour: string, x: number, y: number, width: number, height: number): void {
    let rects = this.byColour.get(colour);
    if (!rects) this.byColour.set(colour, (rects = []));
    rects.push(x, y, width, height);
  }

  paint(put: (colour: string, rects: Rects) => void): void {
    this.byColour.forEach((rects, colour) => put(colour, rects));
  }

  rects(brush: Brush, opacity = 1): void {
    this.paint((colour, rects) => brush.rects(colour, rects, opacity));
  }
}

/** All rectangles of one frame, by the way they are painted. */
class Layers {
  readonly solid = new Batch();
  readonly pale = new Batch();
  readonly faint = new Batch();
  readonly hatched = new Batch();
  readonly replica: Rects = [];
  readonly failed: Rects = [];
  readonly owner: Rects = [];
  readonly frozen = new Batch();
  readonly labels: Label[] = [];
}

export function paintBars(picture: Picture, scale: Scale, brush: Brush): void {
  const layers = new Layers();
  const { layout, scene, scrolled } = picture;
  for (const [at, row] of scene.rows.entries()) {
    const y = AXIS_PX + layout.tops[at]! - scrolled;
    if (y + layout.rowPx < AXIS_PX || y > AXIS_PX + layout.viewPx) continue;
    addRow(picture, scale, row, y, layers);
  }
  paintLayers(picture, layers, brush);
}

function paintLayers({ scheme }: Picture, layers: Layers, brush: Brush): void {
  layers.solid.rects(brush);
  layers.pale.rects(brush, PALE);
  layers.faint.rects(brush, FAINT);
  layers.hatched.paint((colour, rects) => brush.hatch(colour, rects));
  brush.rects(scheme.bad, layers.failed);
  brush.rects(scheme.owner, layers.owner);
  layers.frozen.rects(brush);
  brush.outlines(scheme.ink, layers.replica);
  for (const { text, x, y, colour } of layers.labels) brush.text(colour, text, x, y, { size: 10 });
}

function addRow(picture: Picture, scale: Scale, row: Row, y: number, layers: Layers): void {
  const { bars } = picture.scene;
  const { window, now, layout } = picture;
  const edge = layout.gutter;
  let before = -1; // where the last bar ended
  let painted = -1; // the last pixel that is taken; bars lie on whole pixels, which are quick to fill
  for (let at = firstEndingAfter(bars, row, window.since); at < row.bars.length; at++) {
    const bar = row.bars[at]!;
    const start = bars.start[bar]!;
    if (start > window.until) break;
    const right = Math.round(Math.min(layout.width, scale.x(Math.min(bars.end[bar]!, Math.max(now, start)))));
    const left = Math.round(Math.max(edge - 2, scale.x(start)));
    if (right - left < 1 && right <= painted) continue;
    painted = right;
    addWay(picture, scale, bar, layout.gutter, left, y, before, layers);
    addBar(picture, scale, bar, left, y, Math.max(1, right - left), layers);
    before = addTail(picture, scale, bar, row.bars[at + 1], right, y, layers);
  }
}

/** From when it was sent until it had its slot: a thin line, where no other bar is. */
function addWay(
  { scene: { bars }, scheme, layout }: Picture,
  scale: Scale,
  bar: number,
  edge: number,
  start_px: number,
  y: number,
  before_px: number,
  layers: Layers,
): void {
  const left = Math.max(edge, before_px, Math.round(scale.x(bars.dispatched[bar]!)));
  if (start_px - left < SHORTEST_WAY_PX || bars.isUnstarted[bar]) return;
  layers.solid.add(colourOf(scheme, bars.job[bar]!), left, y + Math.floor(layout.rowPx / 2) - 1, start_px - left, 1);
}

/** From when its slot was free until its result was with the master: a thin line, up to the next bar. Its end. */
function addTail(
  { scene: { bars }, scheme, layout }: Picture,
  scale: Scale,
  bar: number,
  next: number | undefined,
  end_px: number,
  y: number,
  layers: Layers,
): number {
  const until = Math.min(bars.ended[bar]!, next === undefined ? Infinity : bars.start[next]!);
  const right = Math.min(layout.width, Math.round(scale.x(until)));
  if (bars.ended[bar] === Infinity || right - end_px < SHORTEST_WAY_PX) return end_px;
  layers.solid.add(colourOf(scheme, bars.job[bar]!), end_px, y + Math.floor(layout.rowPx / 2) - 1, right - end_px, 1);
  return right;
}

function addBar(
  picture: Picture,
  scale: Scale,
  bar: number,
  x: number,
  y: number,
  width: number,
  layers: Layers,
): void {
  const { scene, scheme, layout, chosen } = picture;
  const { bars } = scene;
  const look = bars.look[bar]!;
  const wide = width > 3 ? width - 1 : width; // leave a gap between neighbours
  const height = layout.rowPx - (layout.rowPx > 7 ? 2 : 1);
  const colour = look === Look.Lost ? scheme.lost : colourOf(scheme, bars.job[bar]!);
  const isFaint = look === Look.Beaten || look === Look.Failed || look === Look.Lost;
  const isBehind = chosen !== null && bars.job[chosen] !== bars.job[bar];
  if (isFaint && !bars.isGuessed[bar]) layers.faint.add(colour, x, y, wide, height);
  const fetched = isFaint ? 0 : fetchedPx(bars, bar, scale, x, wide);
  if (!isFaint) {
    if (fetched) layers.faint.add(colour, x, y, fetched, height);
    if (fetched < wide) (isBehind ? layers.pale : layers.solid).add(colour, x + fetched, y, wide - fetched, height);
  }
  if (look === Look.Beaten || look === Look.Lost) layers.hatched.add(colour, x, y, wide, height);
  if (look === Look.Failed) layers.failed.push(x + Math.max(0, wide - 3), y, Math.min(3, wide), height);
  if (bars.frozen[bar] && width > 2) addFreezes(picture, scale, bar, x, x + wide, y, height, colour, layers);
  if (bars.isReplica[bar] && wide > 4) layers.replica.push(x, y, wide, height);
  if (width - fetched >= LABEL_FROM_PX && look !== Look.Beaten && look !== Look.Lost) {
    const isPale = look === Look.Failed || isBehind;
    const ink = isPale ? scheme.ink : textOn(scheme, colour);
    addLabel(picture, bar, x + fetched, y + height / 2, width - fetched, ink, layers);
  }
}

/** How much of a bar is the time before its process began, in which it had its inputs fetched. */
function fetchedPx(bars: Bars, bar: number, scale: Scale, x: number, width: number): number {
  const began = bars.began[bar];
  if (!began) return 0;
  return Math.max(0, Math.min(width, Math.round(scale.x(bars.start[bar]! + began)) - x));
}

/** While frozen for the owner, the bar is a thin line on the owner's colour. */
function addFreezes(
  { scene, now }: Picture,
  scale: Scale,
  bar: number,
  left: number,
  right: number,
  y: number,
  height: number,
  colour: string,
  layers: Layers,
): void {
  for (const [since, until] of scene.bars.frozen[bar]!) {
    const from = Math.max(left, scale.x(since));
    const to = Math.min(right, scale.x(until ?? now));
    if (to <= from) continue;
    const thin = Math.max(1, Math.round(height / 4));
    layers.owner.push(from, y, to - from, height);
    layers.frozen.add(colour, from, y + (height - thin) / 2, to - from, thin);
  }
}

function addLabel(
  picture: Picture,
  bar: number,
  x: number,
  y: number,
  width: number,
  colour: string,
  layers: Layers,
): void {
  if (picture.layout.rowPx < LABEL_ROW_FROM_PX || layers.labels.length >= MOST_LABELS) return;
  const id = picture.scene.bars.attempt[bar]!;
  const text = id.slice(0, id.lastIndexOf("."));
  if (text.length * 6 + 8 > width || picture.scene.bars.frozen[bar]) return;
  layers.labels.push({ text, x: x + 4, y: y + 0.5, colour });
}
