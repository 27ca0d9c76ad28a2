/** A heat map on a canvas: the pointer or the arrow keys choose a cell, a click or Enter opens its task. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { go } from "../../router";
import { count, duration, plural } from "../../text/human";
import { schemeOf } from "../../timeline/paint/colours";
import { theme } from "../../ui/theme";
import { type Grid, type Measure, numberOf, stateOf } from "./grid";
import { cellAt, layOut, paint, type Picture } from "./paint";
import { shown } from "./rows";
import type { Scale } from "./tones";

interface Props {
  job: number;
  grid: Grid;
  x: string;
  y: string;
  measure: Measure;
  scale: Scale | null;
}

const TOOLTIP_PX = 210;
const STEPS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

export function HeatMap(props: Props) {
  const { grid, measure, scale, x, y } = props;
  const place = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [room, setRoom] = useState(0);
  const [looked, look] = useState<number | null>(null);
  const layout = useMemo(() => layOut(grid, room || 600), [grid, room]);
  const shownTheme = theme.value;

  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setRoom(Math.floor(entry!.contentRect.width)));
    observer.observe(place.current!);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    if (!room) return;
    const picture: Picture = { grid, layout, measure, scale, scheme: schemeOf(shownTheme) };
    paint(fitted(canvas.current!, layout.width, layout.height), picture, looked);
  }, [grid, layout, measure, scale, shownTheme, looked, room]);

  function open(cell: number | null): void {
    const first = cell === null ? undefined : grid.cells[cell]?.[0];
    if (first) go(`/jobs/${props.job}/tasks/${first.number}`);
  }

  function onKey(event: KeyboardEvent): void {
    const step = STEPS[event.key];
    if (event.key === "Enter") open(looked);
    else if (event.key === "Escape") look(null);
    else if (step) {
      event.preventDefault();
      look(moved(grid, looked, step));
    }
  }

  const at = (event: MouseEvent): number | null => cellAt(grid, layout, event.offsetX, event.offsetY);
  return (
    <div class="heat" ref={place}>
      <div class="scroller">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="img"
          aria-label={`${x} across, ${y} down: ${count(grid.xs.length)} × ${count(grid.ys.length)} cells. Arrow keys go from cell to cell, Enter opens a task.`}
          onPointerMove={(event) => look(at(event))}
          onPointerLeave={() => look(null)}
          onBlur={() => look(null)}
          onClick={(event) => open(at(event))}
          onKeyDown={onKey}
        />
      </div>
      {looked !== null && grid.cells[looked] && <CellFacts {...props} cell={looked} layout={layout} room={room} />}
    </div>
  );
}

function moved({ xs, ys }: Grid, from: number | null, [right, down]: [number, number]): number {
  if (from === null) return 0;
  const column = Math.max(0, Math.min(xs.length - 1, (from % xs.length) + right));
  const line = Math.max(0, Math.min(ys.length - 1, Math.floor(from / xs.length) + down));
  return line * xs.length + column;
}

/** The canvas at the screen's own sharpness. */
function fitted(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d")!;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}

type FactsProps = Props & { cell: number; layout: Picture["layout"]; room: number };

function CellFacts({ job, grid, x, y, measure, cell, layout, room }: FactsProps) {
  const tasks = grid.cells[cell]!;
  const [column, line] = [cell % grid.xs.length, Math.floor(cell / grid.xs.length)];
  const left = Math.min(layout.left + (column + 1) * layout.cellWidth + 6, Math.max(0, room - TOOLTIP_PX));
  const top = (line + 1) * layout.cellHeight + 6;
  const state = stateOf(tasks);
  return (
    <div class="tooltip" role="status" style={{ left: `${left}px`, top: `${top}px`, width: `${TOOLTIP_PX}px` }}>
      <p class="tooltip-title">
        {x} {shown(grid.xs[column])}, {y} {shown(grid.ys[line])}
      </p>
      <p>
        {tasks.length === 0 && "no task"}
        {tasks.length === 1 && `task ${job}.${tasks[0]!.number}, ${state}`}
        {tasks.length > 1 && `${plural(tasks.length, "task")}, ${wordOf(tasks)}`}
      </p>
      {tasks.length > 0 && measure !== "state" && (
        <p class="faint">
          {nameOf(measure)}: {valueText(numberOf(tasks, measure), measure)}
          {tasks.length > 1 && ", the mean"}
        </p>
      )}
    </div>
  );
}

/** How many of a cell's tasks are in each state. */
function wordOf(tasks: Grid["cells"][number]): string {
  const counts = new Map<string, number>();
  for (const { state } of tasks) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, number]) => `${number} ${state}`).join(", ");
}

export const nameOf = (measure: Measure): string =>
  measure === "took" ? "time" : measure === "state" ? "state" : measure.slice("metric:".length);

export const valueText = (value: number | null, measure: Measure): string =>
  value === null ? "none yet" : measure === "took" ? duration(value) : shown(value);
