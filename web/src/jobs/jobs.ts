/** Jobs, as the views read them. */
import { get } from "../api/client";
import type { JobPage, JobView, LiveTotals, Queued } from "../api/types";
import { size } from "../text/human";
import { anyJob, type Resource, useResource } from "../live/resource";

const MOST_LIVE = 500;
const NOTHING: LiveTotals = { in_grid: 0, waiting: 0, held: 0, tasks_queued: 0 };

/** Which jobs are looked at: by name, by user, by a label that their workers must have. */
export interface JobFilter {
  named?: string | undefined;
  user?: string | undefined;
  label?: string | undefined;
}

export const isSearch = ({ named, user, label }: JobFilter): boolean => !!(named || user || label);

export interface LiveJob extends JobView {
  heldBy: number | null;
}

/** The head of the queue: the oldest live jobs. A job that holds one of them is older, and so among them. */
export interface LiveJobs {
  /** In the order in which the scheduler turns to them; after them those that wait for others outside the grid. */
  head: LiveJob[];
  /** Of all live jobs, as the master counts them. */
  totals: LiveTotals;
}

export function useLiveJobs(filter: JobFilter = {}): Resource<LiveJobs> {
  const key = `jobs/live/${JSON.stringify(filter)}`;
  return useResource(key, (signal) => readLiveJobs(filter, signal), anyJob);
}

async function readLiveJobs(filter: JobFilter, signal: AbortSignal): Promise<LiveJobs> {
  const [queue, page] = await Promise.all([
    get<Queued[]>("/queue", {}, signal),
    get<JobPage>("/jobs", { ...filter, live: true, limit: MOST_LIVE }, signal),
  ]);
  return { head: ordered(page.items, queue), totals: page.live ?? NOTHING };
}

/** How many jobs are live. */
export const allOf = ({ in_grid, waiting }: LiveTotals): number => in_grid + waiting;

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

export const isOver = (job: JobView): boolean => job.finished_at !== null;

/** The jobs that a job waits for. A paused or stalled one waits for something else, whatever holds it. */
export function waitsFor({ condition, heldBy, waiting_for }: LiveJob): number[] {
  if (condition === "held") return heldBy === null ? [] : [heldBy];
  return condition === "waiting" ? (waiting_for ?? []) : [];
}
