/** A chart put into its place on a page: fed, listened to, kept as wide as its place, until it is taken out again. */
import { effect } from "@preact/signals";
import type { Problem } from "../api/client";
import { awaySince } from "../live/changes";
import { go } from "../router";
import { theme } from "../ui/theme";
import { Chart, type Hit } from "./chart";
import { schemeOf } from "./paint/colours";
import { Feed, type Filter } from "./feed";
import { listen } from "./gestures";
import type { Sums } from "./scene/selection";
import type { Shown } from "./scene/scene";
import type { Window } from "./scene/window";

const TICK_MS = 100;
const BELOW_PX = 24;
const LOWEST_PX = 280;

/** What lies under the pointer, and where. */
export interface Pointed {
  hit: Hit;
  x: number;
  y: number;
}

export interface Wishes {
  filter: Filter;
  /** Length of the live window; `past`: another one to begin with. */
  span: number;
  past: Window | null;
  /** The most height that it takes; null: what is left of the screen. */
  maxHeight: number | null;
  hasWheel: boolean;
}

export interface Listener {
  onBars: (count: number, isTruncated: boolean) => void;
  onProblem: (problem: Problem | null) => void;
  onPoint: (pointed: Pointed | null) => void;
  onLook: (window: Window, isLive: boolean) => void;
  onSelect: (sums: Sums | null) => void;
}

export interface Mounted {
  chart: Chart;
  unmount: () => void;
}

export function mount(place: HTMLElement, canvas: HTMLCanvasElement, wishes: Wishes, listener: Listener): Mounted {
  const feed: Feed = new Feed(wishes.filter, {
    onBars: (bars, changed) => {
      chart.setBars(bars, changed);
      listener.onBars(bars.count, feed.isTruncated);
    },
    onProblem: listener.onProblem,
  });
  const now = (): number => awaySince.peek() ?? feed.now(); // of what the master no longer tells nothing goes on
  const onLook = (window: Window, isLive: boolean): void => {
    feed.look(window, isLive);
    listener.onLook(window, isLive);
  };
  const onHeight = (height: number): void => void (canvas.style.height = `${height}px`);
  const scheme = schemeOf(theme.peek());
  const chart = new Chart(
    canvas,
    scheme,
    wishes.span,
    now,
    { onLook, onHeight, onSelect: listener.onSelect },
    shownBy(wishes.filter),
  );
  const ends = [
    listen(chart, { onHover: pointing(chart, listener), onOpen: open, hasWheel: wishes.hasWheel }),
    fit(place, chart, wishes.maxHeight),
    effect(() => chart.setScheme(schemeOf(theme.value))),
    tick(chart),
    () => feed.stop(),
    () => chart.stop(),
  ];
  if (wishes.past) chart.look(wishes.past);
  else chart.follow(wishes.span);
  return { chart, unmount: () => ends.forEach((end) => end()) };
}

function pointing(chart: Chart, listener: Listener) {
  return (hit: Hit, x: number, y: number): void => {
    chart.choose(hit?.kind === "bar" ? hit.bar : null);
    chart.canvas.style.cursor = hit ? "pointer" : "";
    listener.onPoint(hit ? { hit, x, y } : null);
  };
}

function open(hit: Hit): void {
  if (hit?.kind === "bar") {
    const [job, task] = hit.bars.attempt[hit.bar]!.split(".");
    go(`/jobs/${job}/tasks/${task}`);
  } else if (hit?.kind === "plan") go(`/jobs/${hit.plan.job}`);
  else if (hit?.kind === "job") go(`/jobs/${hit.job.job}`);
  else if (hit?.kind === "worker") go(`/workers/${hit.name}`);
}

function shownBy({ job, user, worker }: Filter): Shown {
  if (worker) return { worker };
  return job || user ? "busy" : "all";
}

/** As wide as its place; as high as is allowed, or as the screen leaves. */
function fit(place: HTMLElement, chart: Chart, maxHeight: number | null): () => void {
  const resize = (): void => {
    const left = window.innerHeight - place.getBoundingClientRect().top - window.scrollY - BELOW_PX;
    chart.resize(place.clientWidth, maxHeight ?? Math.max(LOWEST_PX, left));
  };
  const observer = new ResizeObserver(resize);
  observer.observe(place);
  window.addEventListener("resize", resize);
  return () => {
    observer.disconnect();
    window.removeEventListener("resize", resize);
  };
}

function tick(chart: Chart): () => void {
  const timer = setInterval(() => !document.hidden && chart.tick(), TICK_MS);
  return () => clearInterval(timer);
}
