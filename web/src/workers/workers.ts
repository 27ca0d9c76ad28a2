/** Workers, as the views read them. */
import { get, type Query } from "../api/client";
import type { LastHour, Page, WorkerView } from "../api/types";
import { percent } from "../text/human";
import { anyWorker, never, type Resource, useResource } from "../live/resource";

const PAGE = 500;
const MOST = 5000;
const LAST_HOUR_EVERY_MS = 60_000;

export function useWorkers(): Resource<WorkerView[]> {
  return useResource("workers", readWorkers, anyWorker);
}

const readWorkers = (signal: AbortSignal): Promise<WorkerView[]> => readAll({}, signal);

async function readAll(query: Query, signal: AbortSignal): Promise<WorkerView[]> {
  const found: WorkerView[] = [];
  let cursor: string | null = null;
  do {
    const page: Page<WorkerView> = await get<Page<WorkerView>>("/workers", { ...query, cursor, limit: PAGE }, signal);
    found.push(...page.items);
    cursor = page.next;
  } while (cursor !== null && found.length < MOST);
  return found;
}

export type LastHours = ReadonlyMap<string, LastHour>;

/** What each delivered against what it promised: dearer to find out, so read now and then. */
export function useLastHours(): LastHours | undefined {
  const read = useResource("workers/last-hour", readLastHours, never, LAST_HOUR_EVERY_MS);
  return read.data;
}

async function readLastHours(signal: AbortSignal): Promise<LastHours> {
  const all = await readAll({ last_hour: true }, signal);
  return new Map(all.flatMap(({ name, last_hour }) => (last_hour ? [[name, last_hour] as const] : [])));
}

/** Share of the promised work that was delivered. */
export const keptWord = (hour: LastHour | null | undefined): string =>
  hour ? percent(hour.delivered, hour.promised) : "–";

/** The state of a worker in one word. */
export function stateOf(worker: WorkerView): string {
  if (!worker.connected) return "away";
  if (worker.quarantine) return "quarantined";
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
