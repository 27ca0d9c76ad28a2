/** The chart on the screen: its window, and a canvas that is repainted on changes. */
import type { WaitingPlan } from "../api/types";
import { Bars } from "./scene/bars";
import { CanvasBrush } from "./paint/canvasBrush";
import { type Scheme } from "./paint/colours";
import { AXIS_PX, type Density, groupAt, jobAt, type Layout, layOut, rowAt, Scale } from "./scene/layout";
import { paint } from "./paint/paint";
import type { Picture } from "./paint/picture";
import { endOf, pieceAt } from "./scene/plans";
import { barAt, type Row } from "./scene/rows";
import { type JobRow, type Scene, SceneBuilder, type Shown, type WorkerNote } from "./scene/scene";
import { type Selection, type Sums, sumsOf } from "./scene/selection";
import { live, panned, spanOf, type Window, zoomed } from "./scene/window";

const SLACK_PX = 3;

/** Returns the attempt or job at a point of the chart; a bar's place is among these bars, which may be followed by others. */
export type Hit =
  | { kind: "bar"; bar: number; bars: Bars }
  | { kind: "plan"; plan: WaitingPlan }
  | { kind: "job"; job: JobRow }
  | { kind: "worker"; name: string }
  | null;

export interface Listening {
  onLook: (window: Window, isLive: boolean) => void;
  onHeight: (height: number) => void;
  onSelect: (sums: Sums | null) => void;
}

export class Chart {
  window: Window;
  isLive = true;
  scene: Scene;
  layout: Layout;
  scrolled = 0;
  chosen: number | null = null;
  selection: Selection | null = null;

  private density: Density = null;
  private builder = new SceneBuilder(new Bars());
  private notes: ReadonlyMap<string, WorkerNote> = new Map();
  private plans: readonly WaitingPlan[] = [];
  private width = 0;
  private room = 0;
  private frame = 0;
  private lastNow = 0;
  private isNews = false;
  private readonly brush: CanvasBrush;
  private readonly scale = Math.min(2, window.devicePixelRatio || 1);

  constructor(
    readonly canvas: HTMLCanvasElement,
    private scheme: Scheme,
    span: number,
    readonly now: () => number,
    private readonly listening: Listening,
    private readonly shown: Shown = "all",
  ) {
    this.brush = new CanvasBrush(canvas.getContext("2d")!, this.scale);
    this.window = live(span, now());
    this.scene = this.builder.build(new Set(), this.notes, shown);
    this.layout = layOut(this.scene, 0, 0);
  }

  setBars(bars: Bars, changed: ReadonlySet<number>): void {
    this.isNews = true;
    if (bars !== this.builder.bars) {
      this.chosen = this.chosen === null ? null : bars.placeOf(this.scene.bars.attempt[this.chosen]!);
      this.builder = new SceneBuilder(bars);
    }
    this.rebuild(changed);
  }

  setNotes(notes: ReadonlyMap<string, WorkerNote>): void {
    this.notes = notes;
    this.rebuild(new Set());
  }

  setPlans(plans: readonly WaitingPlan[]): void {
    if (plans === this.plans) return;
    this.plans = plans;
    this.rebuild(new Set());
    if (this.isLive) this.window = live(spanOf(this.window), this.now(), this.planned);
  }

  setDensity(density: Density): void {
    this.density = density;
    this.relay();
  }

  setScheme(scheme: Scheme): void {
    this.scheme = scheme;
    this.touch();
  }

  /** `room`: the most height that there is. */
  resize(width: number, room: number): void {
    if (width === this.width && room === this.room) return;
    [this.width, this.room] = [width, room];
    this.relay();
  }

  /** Paint when the screen is next drawn; once, however often it is asked for. */
  touch(): void {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  /** Time goes on: a live window moves, running bars grow; where that is less than half a pixel, nothing is done. */
  tick(): void {
    const now = this.now();
    const isSeen = now < this.window.until + spanOf(this.window) && this.window.since < now;
    if (!isSeen || ((now - this.lastNow) * this.width) / spanOf(this.window) < 0.5) return;
    if (this.isLive) this.window = live(spanOf(this.window), now, this.planned);
    this.touch();
  }

  look(window: Window, isLive = false): void {
    this.window = window;
    this.isLive = isLive;
    this.listening.onLook(window, isLive);
    this.touch();
  }

  follow(span = spanOf(this.window)): void {
    this.look(live(span, this.now(), this.planned), true);
  }

  /** A live window stays live, and ends at the present. */
  zoom(factor: number, x?: number): void {
    if (this.isLive && (x === undefined || x > this.layout.width * 0.9))
      return this.follow(spanOf(this.window) * factor);
    const around = new Scale(this.window, this.layout).time(x ?? (this.layout.width + this.layout.gutter) / 2);
    this.look(zoomed(this.window, factor, around));
  }

  pan(pixels: number): void {
    this.look(panned(this.window, pixels / new Scale(this.window, this.layout).perSecond));
  }

  scroll(pixels: number): boolean {
    const most = Math.max(0, this.layout.rowsPx - this.layout.viewPx);
    const before = this.scrolled;
    this.scrolled = Math.round(Math.min(most, Math.max(0, before + pixels)));
    if (this.scrolled !== before) this.touch();
    return this.scrolled !== before;
  }

  hit(x: number, y: number): Hit {
    const { layout, scene } = this;
    const at = rowAt(layout, y, this.scrolled);
    const row = scene.rows[at];
    if (row && x < layout.gutter) return { kind: "worker", name: scene.bars.workers[row.worker]! };
    if (row) {
      const scale = new Scale(this.window, layout);
      for (const one of layout.isDense ? rowsBeside(scene, at) : [row]) {
        const bar = barAt(scene.bars, one, scale.time(x), SLACK_PX / scale.perSecond);
        if (bar !== null) return { kind: "bar", bar, bars: scene.bars };
      }
      const piece = pieceAt(scene.plans, scene.rows, row, scale.time(x));
      return piece ? { kind: "plan", plan: piece.plan } : null;
    }
    const job = x < layout.gutter ? undefined : jobAt(scene, layout, y);
    return job ? { kind: "job", job } : null;
  }

  /** Selects what lies between two points, on whole workers; the sums over it are told. */
  selectBetween(x1: number, y1: number, x2: number, y2: number): void {
    const scale = new Scale(this.window, this.layout);
    const times = [x1, x2].map((x) => scale.time(Math.max(this.layout.gutter, Math.min(this.layout.width, x))));
    const groups = [y1, y2].map((y) => groupAt(this.scene, this.layout, y, this.scrolled));
    this.select({
      since: Math.min(...times),
      until: Math.max(...times),
      first: Math.min(...groups),
      last: Math.max(...groups),
    });
  }

  /** Selects all that is in the window. */
  selectAll(): void {
    this.select({ ...this.window, first: 0, last: this.scene.groups.length - 1 });
  }

  select(selection: Selection | null): void {
    this.selection = selection;
    this.listening.onSelect(selection && sumsOf(this.scene, selection, this.now()));
    this.touch();
  }

  choose(bar: number | null): void {
    if (bar === this.chosen) return;
    this.chosen = bar;
    this.touch();
  }

  /** The next bar in time after the chosen one (or the one before), among those in the window: for the keyboard. */
  step(direction: 1 | -1): number | null {
    const { bars } = this.scene;
    const inView = this.scene.rows
      .flatMap((row) => row.bars)
      .filter((bar) => bars.end[bar]! > this.window.since && bars.start[bar]! < this.window.until)
      .sort((a, b) => bars.start[a]! - bars.start[b]! || a - b);
    const at = this.chosen === null ? -1 : inView.indexOf(this.chosen);
    const next = at < 0 ? (direction > 0 ? 0 : inView.length - 1) : at + direction;
    this.choose(inView[Math.max(0, Math.min(inView.length - 1, next))] ?? null);
    return this.chosen;
  }

  /** Where a bar lies, for what is said beside it. */
  placeOf(bar: number): { x: number; y: number } {
    const { bars, rows } = this.scene;
    const row = rows.findIndex((one) => one.worker === bars.worker[bar] && one.bars.includes(bar));
    const x = new Scale(this.window, this.layout).x(Math.max(bars.start[bar]!, this.window.since));
    return { x, y: AXIS_PX + (this.layout.tops[row] ?? 0) - this.scrolled + this.layout.rowPx };
  }

  picture(scheme = this.scheme): Picture {
    const { scene, layout, scrolled, chosen, selection } = this;
    return { scene, layout, window: this.window, now: this.now(), scrolled, scheme, chosen, selection };
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
  }

  /** When all that is planned is over, by limits: a live window shows as much of it as it has room for. */
  private get planned(): number | undefined {
    const ends = this.plans.filter((plan) => plan.start_at !== null).map(endOf);
    return ends.length ? Math.max(...ends) : undefined;
  }

  private rebuild(changed: ReadonlySet<number>): void {
    const workers = this.scene.groups.length;
    this.scene = this.builder.build(changed, this.notes, this.shown, this.plans);
    if (this.selection && workers !== this.scene.groups.length) this.select(null); // it names workers by their places
    this.relay();
  }

  private relay(): void {
    const before = this.layout;
    this.layout = layOut(this.scene, this.width, this.room, this.density);
    if (this.layout.isDense !== before.isDense) this.listening.onLook(this.window, this.isLive); // the toolbar says so
    if (this.layout.height !== before.height) this.listening.onHeight(this.layout.height);
    this.scroll(0);
    this.touch();
  }

  private draw(): void {
    this.frame = 0;
    if (!this.width) return;
    this.fitCanvas();
    this.lastNow = this.now();
    this.brush.begin(this.layout.width, this.layout.height);
    paint(this.picture(), this.brush);
    if (this.isNews) markDrawn();
    this.isNews = false;
  }

  private fitCanvas(): void {
    const [width, height] = [Math.round(this.layout.width * this.scale), Math.round(this.layout.height * this.scale)];
    if (this.canvas.width !== width) this.canvas.width = width;
    if (this.canvas.height !== height) this.canvas.height = height;
  }
}

/** All rows of the worker that has this one. */
const rowsBeside = (scene: Scene, at: number): Row[] =>
  scene.rows.filter(({ worker }) => worker === scene.rows[at]!.worker);

/** For the browser's profiler, and for benchmarks/page.py: new bars are on the screen. Only the latest mark is kept. */
function markDrawn(): void {
  performance.clearMarks("bars-drawn");
  performance.mark("bars-drawn");
}
