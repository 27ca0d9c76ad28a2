import type { Counts } from "../api/types";

export type Share = "succeeded" | "failed" | "running" | "prefetched" | "cancelled";

/** A job's tasks by what becomes of them now: those that wait at a worker for a slot do not count as running. */
export function shares(tasks: Counts): [Share, number][] {
  const prefetched = tasks.prefetched ?? 0;
  const all: [Share, number][] = [
    ["succeeded", tasks.succeeded ?? 0],
    ["failed", tasks.failed ?? 0],
    ["running", (tasks.running ?? 0) - prefetched],
    ["prefetched", prefetched],
    ["cancelled", tasks.cancelled ?? 0],
  ];
  return all.filter(([, number]) => number > 0);
}
