/** Workers, as the views read them. */
import { get } from "../api/client";
import type { Page, WorkerView } from "../api/types";
import { anyWorker, type Resource, useResource } from "../live/resource";

const PAGE = 500;
const MOST = 5000;

export function useWorkers(): Resource<WorkerView[]> {
  return useResource("workers", readWorkers, anyWorker);
}

async function readWorkers(signal: AbortSignal): Promise<WorkerView[]> {
  const found: WorkerView[] = [];
  let cursor: string | null = null;
  do {
    const page: Page<WorkerView> = await get<Page<WorkerView>>("/workers", { cursor, limit: PAGE }, signal);
    found.push(...page.items);
    cursor = page.next;
  } while (cursor !== null && found.length < MOST);
  return found;
}

/** One word for where a worker is. */
export function standing(worker: WorkerView): string {
  if (!worker.connected) return "away";
  if (worker.draining) return "draining";
  return worker.load?.in_use ? "in use" : "connected";
}

export interface Totals {
  connected: number;
  known: number;
  slots: number;
  used: number;
  spareCpu: number;
  inUse: number;
}

export function totals(workers: readonly WorkerView[]): Totals {
  const here = workers.filter((worker) => worker.connected);
  const sum = (of: (worker: WorkerView) => number): number => here.reduce((total, worker) => total + of(worker), 0);
  return {
    connected: here.length,
    known: workers.length,
    slots: sum((worker) => worker.slots),
    used: sum((worker) => worker.slots_used),
    spareCpu: sum((worker) => worker.load?.spare_cpu ?? 0),
    inUse: here.filter((worker) => worker.load?.in_use).length,
  };
}
