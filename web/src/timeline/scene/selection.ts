/** A part of the chart that is looked at more closely: a time, on some workers that stand beside one another. */
import { Look } from "./bars";
import { firstEndingAfter } from "./rows";
import type { Scene } from "./scene";

export interface Selection {
  since: number;
  until: number;
  /** Places of the first and the last worker, among the groups. */
  first: number;
  last: number;
}

/** What lies in a selection; times are within it alone. */
export interface Sums {
  attempts: number;
  tasks: number;
  jobs: number;
  workers: number;
  /** Of attempts, on their slots. */
  slot_s: number;
  /** Of that, for results that count, or that are still to come. */
  useful_s: number;
  frozen_s: number;
  /** Of all slots' time: that of attempts. */
  share: number;
}

export function sumsOf(scene: Scene, { since, until, first, last }: Selection, now: number): Sums {
  const { bars } = scene;
  const [tasks, jobs] = [new Set<string>(), new Set<number>()];
  const sums = { attempts: 0, slot_s: 0, useful_s: 0, frozen_s: 0 };
  let slots = 0;
  for (const group of scene.groups.slice(first, last + 1)) {
    slots += group.rowCount;
    for (const row of scene.rows.slice(group.firstRow, group.firstRow + group.rowCount)) {
      for (let at = firstEndingAfter(bars, row, since); at < row.bars.length; at++) {
        const bar = row.bars[at]!;
        if (bars.start[bar]! >= until) break;
        const end = Math.min(bars.end[bar]!, now);
        const within_s = overlap(bars.start[bar]!, end, since, until);
        sums.attempts++;
        sums.slot_s += within_s;
        if (bars.look[bar] === Look.Won || bars.look[bar] === Look.Running) sums.useful_s += within_s;
        for (const [from, to] of bars.frozen[bar] ?? []) sums.frozen_s += overlap(from, to ?? end, since, until);
        jobs.add(bars.job[bar]!);
        tasks.add(bars.attempt[bar]!.slice(0, bars.attempt[bar]!.lastIndexOf(".")));
      }
    }
  }
  const whole_s = slots * (Math.min(until, Math.max(now, since)) - since);
  return {
    ...sums,
    tasks: tasks.size,
    jobs: jobs.size,
    workers: last - first + 1,
    share: whole_s > 0 ? sums.slot_s / whole_s : 0,
  };
}

const overlap = (from: number, to: number, since: number, until: number): number =>
  Math.max(0, Math.min(to, until) - Math.max(from, since));
