/** Attempts as they are drawn: columns, for there may be 100,000; later answers are merged into earlier ones. */
import type { Hold, Timeline } from "../../api/types";

type Band = [since: number, until: number | null];

export const enum Look {
  Waiting, // dispatched, not yet started
  Running,
  Won, // its result is the task's
  Beaten, // another attempt's result was: cancelled, or not accepted
  Failed,
  Lost,
}

const COLUMNS = [
  ...([
    "attempt",
    "worker",
    "job",
    "look",
    "isReplica",
    "state",
    "dispatched",
    "start",
    "isUnstarted",
    "end",
  ] as const),
  ...(["ended", "slot", "began", "ran", "isGuessed", "frozen"] as const),
];

export class Bars {
  readonly attempt: string[] = [];
  readonly worker: number[] = [];
  readonly job: number[] = []; // the job's number
  readonly look: Look[] = [];
  readonly isReplica: boolean[] = [];
  readonly state: string[] = [];
  readonly dispatched: number[] = [];
  readonly start: number[] = [];
  readonly isUnstarted: boolean[] = [];
  readonly end: number[] = []; // of its time in its slot; Infinity: it goes on
  readonly ended: number[] = []; // when its result was with the master, files included; Infinity: not yet
  readonly slot: (number | null)[] = []; // from 1; null: its worker does not say
  readonly began: (number | null)[] = []; // its process, so many seconds after its start; null: at once
  /** Seconds that the program took; null: unknown. The rest until the end went into its files. */
  readonly ran: (number | null)[] = [];
  readonly isGuessed: boolean[] = []; // the end: nobody knows it
  readonly frozen: (Band[] | null)[] = [];

  readonly workers: string[] = [];
  readonly jobNames = new Map<number, string>();
  readonly ofWorker: number[][] = []; // the bars of each worker, by start
  held: Hold[] = [];

  private readonly places = new Map<string, number>();
  private readonly workerPlaces = new Map<string, number>();

  get count(): number {
    return this.attempt.length;
  }

  /** Take an answer in; the workers whose bars have changed. */
  merge(answer: Timeline): Set<number> {
    const workers = answer.workers.map((name) => this.placeOfWorker(name));
    for (const job of answer.jobs) this.jobNames.set(job.id, job.name);
    this.held = mergeHolds(this.held, answer.held);
    const changed = new Set<number>();
    for (let place = 0; place < answer.bars.attempt.length; place++) {
      const worker = workers[answer.bars.worker[place]!]!;
      if (this.take(answer, place, worker)) changed.add(worker);
    }
    for (const worker of changed) this.ofWorker[worker]!.sort((a, b) => this.start[a]! - this.start[b]! || a - b);
    return changed;
  }

  /** Those that have not ended before `time`, and what is known of their jobs; the places are others. */
  endingAfter(time: number): Bars {
    const kept = new Bars();
    kept.held = this.held.filter((hold) => hold.until === null || hold.until >= time);
    for (const { job } of kept.held) kept.jobNames.set(job, this.jobNames.get(job) ?? "");
    for (let bar = 0; bar < this.count; bar++)
      if (Math.max(this.end[bar]!, this.ended[bar]!) >= time) kept.copy(this, bar);
    for (const own of kept.ofWorker) own.sort((a, b) => kept.start[a]! - kept.start[b]! || a - b);
    return kept;
  }

  private copy(from: Bars, bar: number): void {
    const worker = this.placeOfWorker(from.workers[from.worker[bar]!]!);
    const at = this.attempt.length;
    for (const name of COLUMNS) (this[name] as unknown[])[at] = from[name][bar];
    this.worker[at] = worker;
    this.places.set(this.attempt[at]!, at);
    this.ofWorker[worker]!.push(at);
    this.jobNames.set(this.job[at]!, from.jobNames.get(this.job[at]!) ?? "");
  }

  /** The place of an attempt. */
  placeOf(attempt: string): number | null {
    return this.places.get(attempt) ?? null;
  }

  /**
   * A lost attempt may come back, so the master gives it no end. It is drawn until its task was tried again, or, once
   * its worker is back, until that worker's next attempt; else it is lost until now. Either is a guess. An attempt of
   * the task that began with it, as a gang's other members did, is no other try.
   */
  closeLost(worker: number, isAway: boolean): void {
    const own = this.ofWorker[worker]!;
    own.forEach((bar, at) => {
      if (!this.isGuessed[bar] || this.end[bar] !== Infinity) return;
      const next = this.placeOfNext(bar) ?? (isAway ? undefined : own[at + 1]);
      if (next !== undefined) this.end[bar] = Math.max(this.start[bar]!, this.dispatched[next]!);
    });
  }

  private placeOfNext(bar: number): number | undefined {
    const attempt = this.attempt[bar]!;
    const cut = attempt.lastIndexOf(".") + 1;
    for (let number = Number(attempt.slice(cut)) + 1; ; number++) {
      const next = this.places.get(attempt.slice(0, cut) + number);
      if (next === undefined || this.dispatched[next]! > this.dispatched[bar]!) return next;
    }
  }

  placeOfWorker(name: string): number {
    let place = this.workerPlaces.get(name);
    if (place === undefined) {
      place = this.workers.push(name) - 1;
      this.workerPlaces.set(name, place);
      this.ofWorker.push([]);
    }
    return place;
  }

  /** Whether it is new, or its place in a row has moved. */
  private take({ bars, jobs }: Timeline, from: number, worker: number): boolean {
    const attempt = bars.attempt[from]!;
    const known = this.places.get(attempt);
    const at = known ?? this.attempt.length;
    const start = bars.start[from] ?? bars.dispatched[from]!;
    const end = bars.end[from] ?? Infinity;
    const isUnstarted = bars.start[from] === null;
    const isSame = this.start[at] === start && this.end[at] === end && this.isUnstarted[at] === isUnstarted;
    const moved = known === undefined || !isSame;
    this.attempt[at] = attempt;
    this.worker[at] = worker;
    this.job[at] = jobs[bars.job[from]!]!.id;
    this.state[at] = bars.state[from]!;
    this.isReplica[at] = bars.replica[from] === 1;
    this.look[at] = lookOf(bars.state[from]!, bars.accepted[from] === 1, isUnstarted);
    this.dispatched[at] = bars.dispatched[from]!;
    this.start[at] = start;
    this.isUnstarted[at] = isUnstarted;
    this.end[at] = end;
    this.ended[at] = bars.ended[from] ?? Infinity;
    this.slot[at] = bars.slot[from] ?? null;
    this.began[at] = bars.began[from] ?? null;
    this.ran[at] = bars.ran[from] ?? null;
    this.isGuessed[at] = this.look[at] === Look.Lost && end === Infinity;
    this.frozen[at] = bars.frozen[from] ?? null;
    if (known === undefined) {
      this.places.set(attempt, at);
      this.ofWorker[worker]!.push(at);
    }
    return moved;
  }
}

const BEFORE = new Set(["dispatched", "prefetched", "prepared"]);
const AT_WORK = new Set(["running", "frozen", "delivering", "finished"]);

function lookOf(state: string, isAccepted: boolean, isUnstarted: boolean): Look {
  if (state === "lost") return Look.Lost;
  if (BEFORE.has(state) || (state === "running" && isUnstarted)) return Look.Waiting;
  if (AT_WORK.has(state)) return Look.Running;
  if (state === "failed") return Look.Failed;
  return isAccepted ? Look.Won : Look.Beaten;
}

/** A hold is known by its job and its beginning; its end comes later. */
function mergeHolds(old: Hold[], fresh: Hold[]): Hold[] {
  const byKey = new Map(old.map((hold) => [`${hold.job} ${hold.since}`, hold]));
  for (const hold of fresh) byKey.set(`${hold.job} ${hold.since}`, hold);
  return [...byKey.values()];
}
