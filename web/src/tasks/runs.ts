/** Attempts of a task: how long they ran, by one definition for all tables, and the ranks of a gang. */
import type { AttemptView, TaskView } from "../api/types";
import { between, duration } from "../text/human";

type Row = Partial<Pick<TaskView, "began_at" | "wall_s" | "prefetched">>;

/** Of a task: the attempt that its row describes. */
export function tookOfTask({ began_at, wall_s, prefetched }: Row, now: number): string {
  if (typeof wall_s === "number") return duration(wall_s);
  return prefetched ? "–" : between(began_at ?? null, null, now);
}

export function tookOfAttempt({ started_at, ended_at, wall_s }: AttemptView, now: number): string {
  return ended_at === null ? between(started_at, null, now) : duration(wall_s);
}

/** The ranks of a gang's members, in order; none of a task that runs on one worker. */
export const ranksOf = (attempts: readonly AttemptView[]): number[] =>
  [...new Set(attempts.map(({ rank }) => rank).filter((rank) => typeof rank === "number"))].sort((a, b) => a - b);

/** The worker of a rank's latest attempt. */
export const workerOf = ({ attempts }: { attempts: readonly AttemptView[] }, rank: number): string =>
  attempts.findLast((attempt) => attempt.rank === rank)?.worker ?? "";
