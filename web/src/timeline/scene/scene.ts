/**
 * What is drawn where: rows of workers, below them (where not one worker alone is shown) rows of jobs.
 * Built anew when bars change, not when one pans.
 */
import type { Hold, WaitingPlan } from "../../api/types";
import { naturally } from "../../text/human";
import { Bars } from "./bars";
import { type PlannedPiece, piecesOf } from "./plans";
import { type Row, rowsOf } from "./rows";

/** What is known of a worker beside its bars. */
export interface WorkerNote {
  slots: number;
  isAway: boolean;
  isInUse: boolean;
}

export interface Group {
  name: string;
  firstRow: number;
  rowCount: number;
  note: WorkerNote | undefined;
}

export interface JobRow {
  job: number;
  name: string;
  since: number;
  until: number; // Infinity: it goes on
  holds: Hold[];
}

export interface Scene {
  bars: Bars;
  rows: Row[];
  groups: Group[];
  jobs: JobRow[];
  plans: PlannedPiece[];
}

/** Which workers have rows: all that are known, those with bars, or one. */
export type Shown = "all" | "busy" | { worker: string };

const MOST_JOB_ROWS = 100;

/** Keeps the rows of workers whose bars have not changed. */
export class SceneBuilder {
  private readonly rows = new Map<string, Row[]>();
  private slots = new Map<string, number>();

  constructor(readonly bars: Bars) {}

  build(
    changed: ReadonlySet<number>,
    notes: ReadonlyMap<string, WorkerNote>,
    shown: Shown = "all",
    plans: readonly WaitingPlan[] = [],
  ): Scene {
    for (const worker of changed) this.rows.delete(this.bars.workers[worker]!);
    const names = namesOf(this.bars, notes, shown, plans).sort(naturally);
    const rows: Row[] = [];
    const groups = names.map((name) => {
      const note = notes.get(name);
      const own = this.rowsOf(name, note);
      const group = { name, firstRow: rows.length, rowCount: own.length, note };
      for (const row of own) rows.push(row);
      return group;
    });
    const byName = new Map(groups.map((group) => [group.name, group]));
    const pieces = piecesOf(plans, (name) => byName.get(name));
    const jobs = typeof shown === "object" ? [] : jobRows(this.bars);
    return { bars: this.bars, rows, groups, jobs, plans: pieces };
  }

  private rowsOf(name: string, note: WorkerNote | undefined): Row[] {
    const slots = note?.slots ?? 1;
    let rows = this.slots.get(name) === slots ? this.rows.get(name) : undefined;
    if (!rows) {
      const worker = this.bars.placeOfWorker(name);
      this.bars.closeLost(worker, note?.isAway ?? false);
      rows = rowsOf(this.bars, worker, slots);
      this.rows.set(name, rows);
      this.slots.set(name, slots);
    }
    return rows;
  }
}

function namesOf(
  bars: Bars,
  notes: ReadonlyMap<string, WorkerNote>,
  shown: Shown,
  plans: readonly WaitingPlan[],
): string[] {
  if (shown === "busy") {
    const busy = bars.workers.filter((_, place) => bars.ofWorker[place]!.length > 0);
    return [...new Set([...busy, ...plans.flatMap((plan) => plan.machines)])];
  }
  return shown === "all" ? [...new Set([...bars.workers, ...notes.keys()])] : [shown.worker];
}

/** A row for each of the latest jobs: from its first attempt to its last, and when its last task was held. */
function jobRows(bars: Bars): JobRow[] {
  const found = new Map<number, JobRow>();
  for (let bar = 0; bar < bars.count; bar++) {
    const job = bars.job[bar]!;
    const row = found.get(job);
    if (!row) found.set(job, emptyRow(bars, job, bars.start[bar]!, bars.end[bar]!));
    else {
      row.since = Math.min(row.since, bars.start[bar]!);
      row.until = Math.max(row.until, bars.end[bar]!);
    }
  }
  for (const hold of bars.held) found.get(hold.job)?.holds.push(hold);
  return [...found.values()].sort((a, b) => a.job - b.job).slice(-MOST_JOB_ROWS);
}

function emptyRow(bars: Bars, job: number, since: number, until: number): JobRow {
  return { job, name: bars.jobNames.get(job) ?? "", since, until, holds: [] };
}
