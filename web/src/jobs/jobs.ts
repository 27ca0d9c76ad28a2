/** Jobs, as the views read them. */
import { get } from "../api/client";
import type { JobView, Page, Queued } from "../api/types";
import { size } from "../text/human";
import { anyJob, type Resource, useResource } from "../live/resource";

const MOST_LIVE = 500;
const LIVE_STATES = ["running", "queued", "waiting"] as const;

export interface LiveJob extends JobView {
  heldBy: number | null;
}

/** Jobs in the grid, in the order in which the scheduler turns to them; after them those that wait for others. */
export function useLiveJobs(): Resource<LiveJob[]> {
  return useResource("jobs/live", readLiveJobs, anyJob);
}

async function readLiveJobs(signal: AbortSignal): Promise<LiveJob[]> {
  const [queue, ...pages] = await Promise.all([
    get<Queued[]>("/queue", {}, signal),
    ...LIVE_STATES.map((state) => get<Page<JobView>>("/jobs", { state, limit: MOST_LIVE }, signal)),
  ]);
  return ordered(
    pages.flatMap((page) => page.items),
    queue,
  );
}

/** Those that the queue does not name yet come last. */
export function ordered(jobs: readonly JobView[], queue: readonly Queued[]): LiveJob[] {
  const places = new Map(queue.map((queued, place) => [queued.id, { queued, place }]));
  const place = (job: JobView): number => places.get(job.id)?.place ?? Infinity;
  return [...jobs]
    .sort((a, b) => place(a) - place(b) || a.id - b.id)
    .map((job) => {
      const queued = places.get(job.id)?.queued;
      return { ...job, heldBy: queued?.held_by ?? null, waiting_for: queued?.waiting_for ?? job.waiting_for ?? [] };
    });
}

/** Of its size: as given, or `~` as predicted. */
export const sizeOf = (job: JobView): string =>
  job.size_source === "predicted" ? `~${size(job.size)}` : size(job.size);

/** Outside the grid, for others to succeed. */
export const isWaiting = (job: JobView): boolean => job.state === "waiting";

export const isOver = (job: JobView): boolean => job.finished_at !== null;

/** The word for where a job is: what holds it up comes before what it does. */
export function standing(job: JobView): string {
  if (isOver(job)) return job.state;
  if (job.paused) return "paused";
  if (job.stalled) return "stalled";
  if (job.held) return "held";
  return job.state;
}
