/** Paints the chart with any brush: it looks the same on the screen, as PNG and as SVG. */
import { ticks } from "./axis";
import type { Brush } from "./brush";
import { AXIS_PX, groupPx, Scale } from "../scene/layout";
import { paintBars } from "./paintBars";
import { paintDense } from "./paintDense";
import { paintJobs } from "./paintJobs";
import { paintPlans } from "./paintPlans";
import type { Picture } from "./picture";
import type { Group } from "../scene/scene";

const NAME_PX = 12;
const HALF_LABEL_PX = 20;

export function paint(picture: Picture, brush: Brush): void {
  const scale = new Scale(picture.window, picture.layout);
  const { layout } = picture;
  brush.clip([0, AXIS_PX, layout.width, layout.viewPx]);
  paintGround(picture, brush);
  brush.clip([layout.gutter, 0, layout.width - layout.gutter, layout.height]);
  paintGrid(picture, scale, brush);
  brush.clip([layout.gutter, AXIS_PX, layout.width - layout.gutter, layout.viewPx]);
  if (layout.isDense) paintDense(picture, scale, brush);
  else paintBars(picture, scale, brush);
  paintPlans(picture, scale, brush);
  paintSelection(picture, scale, brush);
  brush.clip(null);
  paintJobs(picture, scale, brush);
  brush.clip(null);
  paintNow(picture, scale, brush);
}

/** Every other worker on a slightly darker ground, its name beside it where there is room for one. */
function paintGround(picture: Picture, brush: Brush): void {
  const { layout, scheme } = picture;
  const seen = groupsInView(picture);
  for (const { place, top, height } of seen)
    if (place % 2) brush.rects(scheme.stripe, [0, top, layout.width, height]);
  let named = -Infinity;
  for (const { group, top, height } of seen) {
    const middle = Math.max(top + height / 2, AXIS_PX + NAME_PX / 2);
    if (middle - named < NAME_PX) continue;
    named = middle;
    paintName(picture, group, middle, brush);
  }
}

interface Seen {
  group: Group;
  place: number;
  top: number;
  height: number;
}

function groupsInView({ layout, scene, scrolled }: Picture): Seen[] {
  return scene.groups
    .map((group, place) => {
      const top = AXIS_PX + (layout.tops[group.firstRow] ?? 0) - scrolled - layout.gapPx / 2;
      return { group, place, top, height: groupPx(layout, group) + layout.gapPx };
    })
    .filter(({ top, height }) => top <= AXIS_PX + layout.viewPx && top + height >= AXIS_PX);
}

/** At most so many letters: names of machines differ at either end. */
export function shortened(name: string, most: number): string {
  if (name.length <= most) return name;
  const before = Math.ceil((most - 1) / 2);
  return `${name.slice(0, before)}…${name.slice(name.length - (most - 1 - before))}`;
}

function paintName({ layout, scheme }: Picture, group: Group, y: number, brush: Brush): void {
  const most = Math.floor((layout.gutter - 22) / 6.2);
  const name = shortened(group.name, most);
  const isAway = group.note?.isAway ?? false;
  if (group.note?.isInUse) brush.rects(scheme.owner, [0, y - 6, 4, 12]);
  if (isAway) brush.rects(scheme.lost, [0, y - 6, 4, 12]);
  brush.text(isAway ? scheme.lost : scheme.ink, name, layout.gutter - 10, y, { align: "right", size: 11 });
}

function paintGrid({ layout, window, scheme }: Picture, scale: Scale, brush: Brush): void {
  const width = layout.width - layout.gutter;
  for (const tick of ticks(window.since, window.until, width)) {
    const x = Math.round(scale.x(tick.at)) + 0.5;
    brush.line(tick.isDay ? scheme.strong : scheme.line, x, AXIS_PX - 4, x, layout.height);
    const isWhole = x > layout.gutter + HALF_LABEL_PX && x < layout.width - HALF_LABEL_PX;
    if (isWhole)
      brush.text(tick.isDay ? scheme.ink : scheme.faint, tick.label, x, AXIS_PX / 2 - 1, {
        align: "center",
        isStrong: tick.isDay,
      });
  }
  brush.line(scheme.strong, layout.gutter, AXIS_PX - 0.5, layout.width, AXIS_PX - 0.5);
}

/** What is selected stands on a ground of its own, between two lines. */
function paintSelection({ selection, layout, scene, scheme, scrolled }: Picture, scale: Scale, brush: Brush): void {
  if (!selection) return;
  const [first, last] = [scene.groups[selection.first], scene.groups[selection.last]];
  if (!first || !last) return;
  const [left, right] = [scale.x(selection.since), scale.x(selection.until)];
  const top = AXIS_PX + (layout.tops[first.firstRow] ?? 0) - scrolled;
  const bottom = AXIS_PX + (layout.tops[last.firstRow] ?? 0) - scrolled + groupPx(layout, last);
  brush.rects(scheme.now, [left, top, right - left, bottom - top], 0.12);
  for (const x of [left, right]) brush.line(scheme.now, Math.round(x) + 0.5, top, Math.round(x) + 0.5, bottom);
}

function paintNow({ layout, now, window, scheme }: Picture, scale: Scale, brush: Brush): void {
  if (now < window.since || now > window.until) return;
  const x = Math.round(scale.x(now)) + 0.5;
  brush.line(scheme.now, x, AXIS_PX - 6, x, layout.height);
}
