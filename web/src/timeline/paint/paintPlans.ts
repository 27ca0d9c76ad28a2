/** Paints planned starts, to the right of now: hatched, promises outlined, and a line from where a start has moved. */
import type { Brush, Rects } from "./brush";
import { colourOf } from "./colours";
import { AXIS_PX, type Scale } from "../scene/layout";
import type { Picture } from "./picture";
import type { PlannedPiece } from "../scene/plans";

const LABEL_FROM_PX = 34;
const LABEL_ROW_FROM_PX = 12;
const TICK_PX = 3;

export function paintPlans(picture: Picture, scale: Scale, brush: Brush): void {
  const { layout, scene, scheme, scrolled, window, now } = picture;
  for (const piece of scene.plans) {
    const y = AXIS_PX + (layout.tops[piece.row] ?? 0) - scrolled;
    const [start, end] = [Math.max(piece.start, now), Math.max(piece.end, now)];
    if (start > window.until || end < window.since) continue;
    const colour = colourOf(scheme, piece.plan.job);
    const rect: Rects = rectOf(scale, start, end, y, layout.rowPx - (layout.rowPx > 7 ? 2 : 1));
    brush.hatch(colour, rect);
    if (piece.plan.kind === "promise") brush.outlines(colour, rect);
    if (piece.plan.moves && piece.isFirst) paintMove(picture, scale, piece, y + layout.rowPx / 2, brush);
    if (rect[2]! >= LABEL_FROM_PX && layout.rowPx >= LABEL_ROW_FROM_PX) paintLabel(picture, piece, rect, brush);
  }
}

function rectOf(scale: Scale, start: number, end: number, y: number, height: number): Rects {
  const [left, right] = [Math.round(scale.x(start)), Math.round(scale.x(end))];
  return [left, y, Math.max(2, right - left - 1), height];
}

function paintLabel({ scheme }: Picture, { plan }: PlannedPiece, [x, y, , height]: Rects, brush: Brush): void {
  const text = `${plan.moves ? "‹ " : ""}${plan.job}`;
  brush.rects(scheme.ground, [x! + 2, y! + height! / 2 - 6, text.length * 6 + 5, 12]);
  brush.text(scheme.ink, text, x! + 4, y! + height! / 2 + 0.5, { size: 10 });
}

/** From the start that was told first to the one that is planned now. */
function paintMove({ scheme }: Picture, scale: Scale, { plan, start }: PlannedPiece, y: number, brush: Brush): void {
  const told = plan.first_start_at;
  if (told === null || told <= start) return;
  const [from, to] = [scale.x(told), scale.x(start)];
  brush.line(scheme.faint, to, y, from, y);
  brush.line(scheme.faint, from, y - TICK_PX, from, y + TICK_PX);
}
