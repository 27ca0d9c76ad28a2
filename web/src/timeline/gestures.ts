/** Translates wheel, drag, pinch and keys into actions of the chart. */
import type { Chart, Hit } from "./chart";

export interface Gestures {
  onHover: (hit: Hit, x: number, y: number) => void;
  onOpen: (hit: Hit) => void;
  /** A wheel without a modifier zooms; false: it scrolls the page, as elsewhere. */
  hasWheel: boolean;
}

const CLICK_PX = 4;
const ZOOM_STEP = 1.5;
const PAN_SHARE = 0.15;
const LINE_PX = 30;

/** Listen on the chart's canvas, until the returned function is called. */
export function listen(chart: Chart, gestures: Gestures): () => void {
  const controller = new AbortController();
  const { canvas } = chart;
  const options = { signal: controller.signal };
  const drag = new Drag(chart, gestures);
  canvas.addEventListener("wheel", (event) => turnWheel(chart, gestures, event), { ...options, passive: false });
  canvas.addEventListener("pointerdown", (event) => drag.down(event), options);
  canvas.addEventListener("pointermove", (event) => drag.move(event), options);
  canvas.addEventListener("pointerup", (event) => drag.up(event), options);
  canvas.addEventListener("pointercancel", (event) => drag.forget(event), options);
  canvas.addEventListener("pointerleave", () => gestures.onHover(null, 0, 0), options);
  canvas.addEventListener("keydown", (event) => press(chart, gestures, event), options);
  return () => controller.abort();
}

function turnWheel(chart: Chart, { hasWheel }: Gestures, event: WheelEvent): void {
  const isZoom = hasWheel || event.ctrlKey || event.metaKey;
  const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
  if (!isZoom && !isSideways) return;
  event.preventDefault();
  const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PX : 1;
  if (isSideways) chart.pan((event.deltaX || event.deltaY) * unit);
  else if (event.altKey) chart.scroll(event.deltaY * unit);
  else chart.zoom(Math.exp(event.deltaY * unit * 0.0018), event.offsetX);
}

/** One finger or button pans, two fingers zoom; a press without movement is a click. */
class Drag {
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private movedPx = 0;
  /** Where a selection begins; null: the chart is moved. */
  private corner: { x: number; y: number } | null = null;

  constructor(
    private readonly chart: Chart,
    private readonly gestures: Gestures,
  ) {}

  down(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.chart.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    this.movedPx = 0;
    this.corner = event.shiftKey ? { x: event.offsetX, y: event.offsetY } : null;
  }

  move(event: PointerEvent): void {
    const at = { x: event.offsetX, y: event.offsetY };
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.gestures.onHover(this.chart.hit(at.x, at.y), at.x, at.y);
    const spread = this.spread();
    this.pointers.set(event.pointerId, at);
    this.movedPx += Math.abs(at.x - before.x) + Math.abs(at.y - before.y);
    if (this.movedPx < CLICK_PX) return;
    this.gestures.onHover(null, 0, 0);
    if (this.corner) return this.chart.selectBetween(this.corner.x, this.corner.y, at.x, at.y);
    const middle = this.middle();
    if (spread && this.spread()) this.chart.zoom(spread / this.spread()!, middle);
    else this.chart.pan(before.x - at.x);
    this.chart.scroll(before.y - at.y);
  }

  up(event: PointerEvent): void {
    const isClick = this.pointers.has(event.pointerId) && this.movedPx < CLICK_PX;
    this.forget(event);
    if (isClick) this.gestures.onOpen(this.chart.hit(event.offsetX, event.offsetY));
  }

  forget(event: PointerEvent): void {
    this.pointers.delete(event.pointerId);
  }

  private spread(): number | null {
    const [one, other] = [...this.pointers.values()];
    return one && other ? Math.max(20, Math.hypot(one.x - other.x, one.y - other.y)) : null;
  }

  private middle(): number {
    const all = [...this.pointers.values()];
    return all.reduce((sum, pointer) => sum + pointer.x, 0) / all.length;
  }
}

function press(chart: Chart, gestures: Gestures, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const step = (chart.layout.width - chart.layout.gutter) * PAN_SHARE;
  const actions: Record<string, () => void> = {
    ArrowLeft: () => chart.pan(-step),
    ArrowRight: () => chart.pan(step),
    ArrowUp: () => chart.scroll(-LINE_PX),
    ArrowDown: () => chart.scroll(LINE_PX),
    PageUp: () => chart.scroll(-chart.layout.viewPx),
    PageDown: () => chart.scroll(chart.layout.viewPx),
    "+": () => chart.zoom(1 / ZOOM_STEP),
    "=": () => chart.zoom(1 / ZOOM_STEP),
    "-": () => chart.zoom(ZOOM_STEP),
    l: () => chart.follow(),
    End: () => chart.follow(),
    Home: () => chart.follow(86400),
    n: () => pick(chart, gestures, 1),
    p: () => pick(chart, gestures, -1),
    Enter: () => chart.chosen !== null && gestures.onOpen({ kind: "bar", bar: chart.chosen, bars: chart.scene.bars }),
    s: () => chart.selectAll(),
    Escape: () => {
      chart.select(null);
      gestures.onHover(null, 0, 0);
    },
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

function pick(chart: Chart, gestures: Gestures, direction: 1 | -1): void {
  const bar = chart.step(direction);
  if (bar === null) return;
  const { x, y } = chart.placeOf(bar);
  gestures.onHover({ kind: "bar", bar, bars: chart.scene.bars }, x, y);
}
