/** CPU time of the whole grid by outcome. */
import type { HistoryLine, HistoryReport } from "../api/types";
import { energy, grams } from "../text/human";

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

const SOURCES: Record<string, string> = {
  socket: "at the socket",
  package: "processor package only",
  declared: "from declared watts",
  gpu: "GPUs",
};

/** What the attempts of a report used above idle computers; empty where nothing was measured or declared. */
export function energyWords(report: HistoryReport): string {
  if (!report.energy) return "";
  const { useful_kwh: useful, wasted_kwh: wasted, by_source } = report.energy;
  const sources = Object.keys(SOURCES).filter((source) => source in by_source);
  const found = sources.map((source) => SOURCES[source]).join(", ");
  const rate = report.co2_grams_per_kwh;
  const co2 = typeof rate === "number" ? `, ${grams((useful + wasted) * rate)} of CO2` : "";
  return `Energy: ${energy(useful)} useful, ${energy(wasted)} wasted${co2} (${found}).`;
}
