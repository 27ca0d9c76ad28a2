/** CPU time of the whole grid by outcome. */
import type { HistoryLine } from "../api/types";

type Sums = Pick<
  HistoryLine,
  "tasks" | "attempts" | "useful_cpu_s" | "replicated_cpu_s" | "wasted_cpu_s" | "lost_cpu_s"
> & { kept_cpu_s: number };

/** Over all users. */
export function summed(lines: readonly HistoryLine[]): Sums {
  const sums: Sums = {
    tasks: 0,
    attempts: 0,
    useful_cpu_s: 0,
    replicated_cpu_s: 0,
    wasted_cpu_s: 0,
    lost_cpu_s: 0,
    kept_cpu_s: 0,
  };
  for (const line of lines) for (const name of Object.keys(sums) as (keyof Sums)[]) sums[name] += line[name] ?? 0;
  return sums;
}
