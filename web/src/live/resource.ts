/** Something of the master's that a view shows: read once, and again whenever what it is about has changed. */
import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem, type Problem } from "../api/client";
import type { GridChange } from "../api/types";
import { budgetWaitMs } from "./budget";
import { onChange } from "./changes";

const REST_MS = 700;
const MOST_KEPT = 60;
const kept = new Map<string, unknown>();

export interface Resource<T> {
  data: T | undefined;
  problem: Problem | undefined;
  reload: () => void;
}

export type Concerns = (change: GridChange) => boolean;

/**
 * `key` names what is read: another key, another thing; null: nothing. What was read before under this key is shown
 * until the answer is there. With `everyMs` it is read again by the clock as well. Two readings are at least REST_MS
 * apart, and further where the master is slow, or where what is read costs much.
 */
export function useResource<T>(
  key: string | null,
  read: (signal: AbortSignal) => Promise<T>,
  concerns: Concerns = never,
  everyMs?: number,
): Resource<T> {
  const [, redraw] = useState(0);
  const state = useRef<{ key: string | null; problem: Problem | undefined }>({ key, problem: undefined });
  if (state.current.key !== key) state.current = { key, problem: undefined };
  const latest = useRef({ read, concerns });
  latest.current = { read, concerns };
  const reload = useRef<() => void>(() => {});

  useEffect(() => {
    if (key === null) return;
    const reader = new Reader<T>(
      (signal) => latest.current.read(signal),
      (data, problem) => {
        if (data !== undefined) keep(key, data);
        state.current = { key, problem };
        redraw((count) => count + 1);
      },
    );
    reload.current = () => reader.wish(true);
    reader.wish();
    const isDue = (change: GridChange): boolean =>
      state.current.problem?.isAway === true || latest.current.concerns(change);
    const forget = onChange((change) => isDue(change) && reader.wish());
    const timer = everyMs && setInterval(() => document.hidden || reader.wish(), everyMs);
    return () => {
      forget();
      clearInterval(timer);
      reader.stop();
    };
  }, [key]);

  const data = key === null ? undefined : (kept.get(key) as T | undefined);
  return { data, problem: state.current.problem, reload: () => reload.current() };
}

/** Forget all that was read: another person has signed in. */
export function forgetAll(): void {
  kept.clear();
}

export const never: Concerns = () => false;
export const anyJob: Concerns = (change) => change.missed || change.jobs.length > 0;
export const anyWorker: Concerns = (change) => change.missed || change.workers.length > 0;
export const anything: Concerns = () => true;
export const thisJob =
  (job: number): Concerns =>
  (change) =>
    change.missed || change.jobs.includes(job);
export const thisWorker =
  (worker: string): Concerns =>
  (change) =>
    change.missed || change.workers.includes(worker);

function keep(key: string, data: unknown): void {
  kept.delete(key);
  kept.set(key, data);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value!);
}

/** Reads one at a time; wishes that come meanwhile become one more reading. */
class Reader<T> {
  private controller: AbortController | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isWished = false;
  private restUntil = 0;
  /** What a user waits for comes at once, whatever it costs. */
  private isUrgent = true;

  constructor(
    private readonly read: (signal: AbortSignal) => Promise<T>,
    private readonly tell: (data: T | undefined, problem: Problem | undefined) => void,
  ) {}

  wish(isUrgent = false): void {
    this.isWished = true;
    this.isUrgent ||= isUrgent;
    if (this.controller || (this.timer !== undefined && !isUrgent)) return;
    this.plan();
  }

  private plan(): void {
    const restMs = Math.max(0, this.restUntil - performance.now(), this.waitMs());
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.turn(), restMs);
  }

  /** It is waited for once: who looked again before each reading would starve beside one that reads all the time. */
  private waitMs(): number {
    return this.isUrgent ? 0 : budgetWaitMs();
  }

  stop(): void {
    this.controller?.abort();
    clearTimeout(this.timer);
  }

  private async turn(): Promise<void> {
    this.timer = undefined;
    this.isWished = this.isUrgent = false;
    const controller = (this.controller = new AbortController());
    const began = performance.now();
    try {
      const data = await this.read(controller.signal);
      if (!controller.signal.aborted) this.tell(data, undefined);
    } catch (error) {
      if (!controller.signal.aborted) this.tell(undefined, asProblem(error));
    }
    if (controller.signal.aborted) return;
    const tookMs = performance.now() - began;
    this.restUntil = performance.now() + Math.max(REST_MS, 2 * tookMs);
    this.controller = undefined;
    if (this.isWished) this.wish();
  }
}
