/** Draws a heat map: its cells, the values along its edges, and a frame around the cell that is looked at. */
import type { Scheme } from "../../timeline/paint/colours";
import type { TaskState } from "../../api/types";
import { type Grid, type Measure, numberOf, stateOf } from "./grid";
import { shown } from "./rows";
import { type Scale, shareOf, stateColours, toneAt } from "./tones";

const LARGEST_PX = 34;
const SMALLEST_PX = 3;
const GUTTER_PX = 86;
const FOOT_PX = 20;
const MARKED_PX = 7;
const LETTER_PX = 7;
/** A mark on a colour of the scale has an edge, so that it is seen on light and on dark cells. */
const [LINE_PX, EDGE_PX] = [1.5, 4];
const FONT = "11px system-ui, sans-serif";

type Box = [x: number, y: number, width: number, height: number];

export interface Layout {
  left: number;
  cellWidth: number;
  cellHeight: number;
  width: number;
  height: number;
}

/** Cells as large as there is room for across; a map that is still too wide is scrolled. */
export function layOut({ xs, ys }: Grid, room: number): Layout {
  const fitting = (px: number): number => Math.max(SMALLEST_PX, Math.min(LARGEST_PX, Math.floor(px)));
  const cellWidth = fitting((room - GUTTER_PX) / xs.length);
  const cellHeight = Math.min(cellWidth, fitting(900 / ys.length));
  const width = GUTTER_PX + cellWidth * xs.length + 1;
  return { left: GUTTER_PX, cellWidth, cellHeight, width, height: cellHeight * ys.length + FOOT_PX };
}

/** The place of the cell at a pixel; null beside the cells. */
export function cellAt(
  { xs, ys }: Grid,
  { left, cellWidth, cellHeight }: Layout,
  x: number,
  y: number,
): number | null {
  const [column, line] = [Math.floor((x - left) / cellWidth), Math.floor(y / cellHeight)];
  return column < 0 || line < 0 || column >= xs.length || line >= ys.length ? null : line * xs.length + column;
}

export interface Picture {
  grid: Grid;
  layout: Layout;
  measure: Measure;
  scale: Scale | null;
  scheme: Scheme;
}

export function paint(context: CanvasRenderingContext2D, picture: Picture, looked: number | null): void {
  const { grid, layout, scheme } = picture;
  const { left, cellWidth, cellHeight } = layout;
  context.clearRect(0, 0, layout.width, layout.height);
  const colours = stateColours();
  const gap = cellWidth > MARKED_PX ? 1 : 0;
  grid.cells.forEach((cell, place) => {
    const [x, y] = [left + (place % grid.xs.length) * cellWidth, Math.floor(place / grid.xs.length) * cellHeight];
    const colour = colourOf(picture, cell, colours);
    context.fillStyle = colour ?? scheme.stripe;
    context.fillRect(x, y, cellWidth - gap, cellHeight - gap);
    const state = marked(cell, picture.measure);
    if (cellHeight >= MARKED_PX && state) {
      const box: Box = [x, y, cellWidth - gap, cellHeight - gap];
      if (picture.measure !== "state") mark(context, state, scheme.ink, EDGE_PX, box);
      mark(context, state, scheme.ground, LINE_PX, box);
    }
  });
  paintNames(context, picture);
  if (looked === null) return;
  context.strokeStyle = scheme.ink;
  context.lineWidth = 2;
  const [column, line] = [looked % grid.xs.length, Math.floor(looked / grid.xs.length)];
  context.strokeRect(left + column * cellWidth, Math.max(1, line * cellHeight), cellWidth, cellHeight);
}

/** The colour of a cell; null where there is nothing to show yet. */
function colourOf({ measure, scale }: Picture, cell: Grid["cells"][number], states: Record<TaskState, string>) {
  if (measure === "state") {
    const state = stateOf(cell);
    return state && states[state];
  }
  const value = numberOf(cell, measure);
  return value === null || !scale ? null : toneAt(shareOf(value, scale));
}

/** The state that a cell is marked with; of numbers only failures are marked, which have no number or a doubtful one. */
export function marked(cell: Grid["cells"][number], measure: Measure): TaskState | null {
  const state = stateOf(cell);
  return measure === "state" || state === "failed" ? state : null;
}

/** What failed has a cross and what runs a dot: they are not told apart by colour alone. */
function mark(
  context: CanvasRenderingContext2D,
  state: TaskState | null,
  colour: string,
  line_px: number,
  [x, y, width, height]: Box,
): void {
  const [middleX, middleY, half] = [x + width / 2, y + height / 2, Math.min(width, height) / 4];
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = line_px;
  context.beginPath();
  if (state === "failed") {
    context.moveTo(middleX - half, middleY - half);
    context.lineTo(middleX + half, middleY + half);
    context.moveTo(middleX + half, middleY - half);
    context.lineTo(middleX - half, middleY + half);
    context.stroke();
  } else if (state === "running") {
    context.arc(middleX, middleY, half / 1.5, 0, 2 * Math.PI);
    context.fill();
  }
}

/** As many values as there is room for, along the left edge and below. */
function paintNames(context: CanvasRenderingContext2D, { grid, layout, scheme }: Picture): void {
  const { left, cellWidth, cellHeight } = layout;
  context.fillStyle = scheme.faint;
  context.font = FONT;
  context.textBaseline = "middle";
  context.textAlign = "right";
  const everyLine = Math.ceil(14 / cellHeight);
  for (let line = 0; line < grid.ys.length; line += everyLine)
    context.fillText(cut(shown(grid.ys[line])), left - 6, (line + 0.5) * cellHeight, left - 8);
  context.textAlign = "center";
  const longest = Math.max(...grid.xs.map((value) => cut(shown(value)).length));
  const everyColumn = Math.ceil((longest * LETTER_PX + 8) / cellWidth);
  for (let column = 0; column < grid.xs.length; column += everyColumn)
    context.fillText(
      cut(shown(grid.xs[column])),
      left + (column + 0.5) * cellWidth,
      grid.ys.length * cellHeight + FOOT_PX / 2,
    );
}

const cut = (text: string): string => (text.length > 12 ? `${text.slice(0, 11)}…` : text);
