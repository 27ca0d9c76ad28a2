import { decimal } from "../text/human";
import type { Trend } from "./workers";

/** A worker's cores over the last hour: those that its owner left, and in front of them those that tasks used. */
export function Sparkline({ trend, cores }: { trend: Trend | undefined; cores: number }) {
  const known = trend?.spare.filter((value) => value !== null);
  if (!trend || !known?.length) return <span class="faint">–</span>;
  const most = Math.max(cores, ...known, 1);
  const words = `${decimal(Math.min(...known))} to ${decimal(Math.max(...known))} of ${cores} cores spare`;
  return (
    <svg class="spark" viewBox={`0 0 ${trend.spare.length} ${most}`} preserveAspectRatio="none" role="img">
      <title>In the last hour {words}</title>
      <path class="spare" d={columnsOf(trend.spare, most)} />
      <path class="used" d={columnsOf(trend.used, most)} />
    </svg>
  );
}

/** A column for each value, standing on the ground; where nothing is known there is none. */
export function columnsOf(values: readonly (number | null)[], most: number): string {
  return values.map((value, at) => (value ? `M${at} ${most}V${most - value}h1V${most}z` : "")).join("");
}
