/** Loads the bars of a window and, while it is live, the changes since. */
import type { Timeline } from "../api/types";
import { asProblem, get, type Problem } from "../api/client";
import { budgetWaitMs } from "../live/budget";
import { onChange } from "../live/changes";
import { Bars } from "./scene/bars";
import { covers, live, spanOf, type Window } from "./scene/window";

/** Attempts of one job, of one user's jobs, on one worker; undefined: of all. */
export interface Filter {
  job?: number | undefined;
  user?: string | undefined;
  worker?: string | undefined;
}

export interface Feeding {
  /** New bars; all: they are others than before. */
  onBars: (bars: Bars, changed: ReadonlySet<number>, isAll: boolean) => void;
  onProblem: (problem: Problem | null) => void;
}

export const MOST_BARS = 100_000;
/** As many as are kept however old they are: whoever zooms in and out waits for nothing. */
const FEW_BARS = 5_000;
const REST_MS = 400;
const SETTLE_MS = 180;
const MARGIN = 0.4;
const OVERLAP_S = 2;
/** Windows begin at whole steps: pages that show the same ask for the same, which the master makes once. */
const STEP_S = 2;

export class Feed {
  bars = new Bars();
  isTruncated = false;
  /** The master's clock, less ours. */
  skew_s = 0;

  private loaded: Window | null = null;
  private wanted: Window | null = null;
  private isLive = true;
  private isBusy = false;
  private isStale = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly controller = new AbortController();
  private readonly forget: () => void;

  constructor(
    private readonly filter: Filter,
    private readonly feeding: Feeding,
  ) {
    this.forget = onChange((change) => {
      if (change.missed) this.loaded = null;
      this.isStale = true;
      if (this.isLive || change.missed) this.plan(0);
    });
  }

  now(): number {
    return Date.now() / 1000 + this.skew_s;
  }

  /** Look at this window; a live one ends at the present. */
  look(window: Window, isLive: boolean): void {
    const isFirst = !this.wanted;
    this.wanted = window;
    this.isLive = isLive;
    if (this.needsAll(window) || (isLive && this.isStale)) this.plan(isFirst ? 0 : SETTLE_MS);
  }

  stop(): void {
    this.forget();
    this.controller.abort();
    clearTimeout(this.timer);
  }

  private needsAll(window: Window): boolean {
    if (!this.loaded) return true;
    const seen = { since: window.since, until: Math.min(window.until, this.loaded.until) };
    const isCloser = this.isTruncated && spanOf(window) < spanOf(this.loaded) / 3;
    const isBeyond = !this.isLive && window.until > this.loaded.until && this.loaded.until < this.now() - OVERLAP_S;
    return !covers(this.loaded, seen) || isCloser || isBeyond || this.bars.count > 1.5 * MOST_BARS;
  }

  private plan(delayMs: number): void {
    if (this.isBusy || this.timer !== undefined) return;
    this.timer = setTimeout(() => void this.turn(), delayMs);
  }

  private async turn(): Promise<void> {
    this.timer = undefined;
    if (!this.wanted) return;
    if (this.isLive) this.wanted = live(spanOf(this.wanted), this.now());
    this.isBusy = true;
    this.isStale = false;
    try {
      await (this.needsAll(this.wanted) ? this.readAll(this.wanted) : this.readNews());
      this.feeding.onProblem(null);
    } catch (error) {
      if (this.controller.signal.aborted) return;
      this.feeding.onProblem(asProblem(error));
    }
    setTimeout(() => this.rested(), Math.max(REST_MS, budgetWaitMs()));
  }

  private rested(): void {
    this.isBusy = false;
    if (this.isStale && this.isLive) this.plan(0);
    else if (this.wanted && this.needsAll(this.wanted) && !this.controller.signal.aborted) this.plan(SETTLE_MS * 5);
  }

  private async readAll(window: Window): Promise<void> {
    const margin = MARGIN * spanOf(window);
    const since = Math.max(0, window.since - margin);
    const until = window.until + margin < this.now() ? window.until + margin : undefined;
    const answer = await this.read(since, until);
    this.bars = new Bars();
    this.isTruncated = answer.truncated;
    this.loaded = { since, until: answer.until };
    this.feeding.onBars(this.bars, this.bars.merge(answer), true);
  }

  /** Loads changes since the last poll: running attempts, and those that have ended. */
  private async readNews(): Promise<void> {
    const answer = await this.read(this.loaded!.until - OVERLAP_S, undefined);
    this.loaded!.until = answer.until;
    const changed = this.bars.merge(answer);
    const isAll = this.forgetOld();
    this.feeding.onBars(this.bars, isAll ? allWorkers(this.bars) : changed, isAll);
  }

  /** Drop what ended long before a live window, a good part at a time; whether anything was. */
  private forgetOld(): boolean {
    const { since } = this.wanted!;
    const span = spanOf(this.wanted!);
    if (!this.isLive || this.bars.count < FEW_BARS || this.loaded!.since > since - 2 * MARGIN * span) return false;
    this.loaded!.since = since - MARGIN * span;
    this.bars = this.bars.endingAfter(this.loaded!.since);
    return true;
  }

  private async read(from: number, until: number | undefined): Promise<Timeline> {
    const since = Math.floor(from / STEP_S) * STEP_S;
    const query = { since, until, limit: MOST_BARS, ...this.filter };
    const answer = await get<Timeline>("/timeline", query, this.controller.signal);
    if (until === undefined) this.skew_s = answer.until - Date.now() / 1000;
    return answer;
  }
}

const allWorkers = (bars: Bars): ReadonlySet<number> => new Set(bars.workers.keys());
