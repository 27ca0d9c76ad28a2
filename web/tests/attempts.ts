import type { Timeline } from "../src/api/types";

export type Attempt = [
  id: string,
  worker: string,
  start: number | null,
  end: number | null,
  state?: string,
  accepted?: boolean,
  slot?: number,
];

/** An answer of the master with these attempts. */
export function timeline(attempts: Attempt[]): Timeline {
  const workers = [...new Set(attempts.map(([, worker]) => worker))];
  const jobs = [...new Set(attempts.map(([id]) => Number(id.split(".")[0])))];
  return {
    since: 0,
    until: 1000,
    truncated: false,
    workers,
    jobs: jobs.map((id) => ({ id, name: `job-${id}` })),
    held: [],
    bars: {
      attempt: attempts.map(([id]) => id),
      worker: attempts.map(([, worker]) => workers.indexOf(worker)),
      job: attempts.map(([id]) => jobs.indexOf(Number(id.split(".")[0]))),
      state: attempts.map(([, , , end, state]) => (state ?? (end === null ? "running" : "succeeded")) as "running"),
      replica: attempts.map(() => 0),
      accepted: attempts.map(([, , , end, , accepted]) => Number(accepted ?? end !== null)),
      dispatched: attempts.map(([, , start]) => start ?? 0),
      start: attempts.map(([, , start]) => start),
      end: attempts.map(([, , , end]) => end),
      ended: attempts.map(([, , , end]) => end),
      slot: attempts.map(([, , , , , , slot]) => slot ?? null),
      began: attempts.map(() => null),
      ran: attempts.map(() => null),
      frozen: attempts.map(() => null),
    },
  };
}
