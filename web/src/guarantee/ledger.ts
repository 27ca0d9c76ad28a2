/** What computation was good for: the replication ledger. */
import type { AttemptView } from "../api/types";

export interface LedgerSums {
  useful_s: number; // its result is the task's
  replicated_s: number; // another attempt's result was
  failed_s: number;
  lost_s: number; // of workers that went away, or took it back
  attempts: number;
  replicas: number;
  replicasThatWon: number;
}

export function ledgerOf(attempts: readonly AttemptView[]): LedgerSums {
  const sums: LedgerSums = {
    useful_s: 0,
    replicated_s: 0,
    failed_s: 0,
    lost_s: 0,
    attempts: 0,
    replicas: 0,
    replicasThatWon: 0,
  };
  for (const attempt of attempts) {
    if (attempt.ended_at === null && attempt.state !== "lost") continue;
    sums.attempts += 1;
    sums[columnOf(attempt)] += attempt.cpu_s;
    if (attempt.replica) sums.replicas += 1;
    if (attempt.replica && attempt.accepted) sums.replicasThatWon += 1;
  }
  return sums;
}

function columnOf(attempt: AttemptView): "useful_s" | "replicated_s" | "failed_s" | "lost_s" {
  if (attempt.accepted) return "useful_s";
  if (attempt.state === "failed") return "failed_s";
  return attempt.state === "lost" || attempt.reason ? "lost_s" : "replicated_s";
}
