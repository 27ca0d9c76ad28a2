/** Workers, as the views read them. */
import { get, type Query } from "../api/client";
import type { LastHour, Load, Page, WorkerSamples, WorkerView } from "../api/types";
import { percent } from "../text/human";
import { anyWorker, never, type Resource, useResource } from "../live/resource";

const PAGE = 500;
const MOST = 5000;
const LAST_HOUR_EVERY_MS = 60_000;
const TREND_POINTS = 30;

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

/** What tasks used of each in the last hour: it costs more to read, so it is read by the minute. */
export function useLastHours(): LastHours | undefined {
  const read = useResource("workers/last-hour", readLastHours, never, LAST_HOUR_EVERY_MS);
  return read.data;
}

async function readLastHours(signal: AbortSignal): Promise<LastHours> {
  const all = await readAll({ last_hour: true }, signal);
  return new Map(all.flatMap(({ name, last_hour }) => (last_hour ? [[name, last_hour] as const] : [])));
}

/** Spare CPU and slots in use of one worker, in equal steps up to now; null: nothing is known of that time. */
export interface Trend {
  spare: (number | null)[];
  used: (number | null)[];
}

/** Trends of the last hour, by worker: samples are taken by the minute. */
export function useTrends(): ReadonlyMap<string, Trend> | undefined {
  const read = useResource("samples/by-worker", readTrends, never, LAST_HOUR_EVERY_MS);
  return read.data;
}

async function readTrends(signal: AbortSignal): Promise<ReadonlyMap<string, Trend>> {
  const { workers, spare_cpu, used } = await get<WorkerSamples>(
    "/samples/by-worker",
    { points: TREND_POINTS },
    signal,
  );
  return new Map(workers.map((name, place) => [name, { spare: spare_cpu[place]!, used: used[place]! }]));
}

/** Share of what a worker offered that tasks used; one whose slots are withheld now offers nothing. */
export const usedWord = (hour: LastHour | null | undefined): string =>
  !hour ? "–" : hour.share === null ? "nothing offered" : percent(hour.share, 1);

/** The latest load that is known of a worker; null: nothing, as of one that is away. */
export const loadOf = (worker: WorkerView): Load | null => (worker.connected ? worker.load : null);

/** The state of a worker in one word. */
export function stateOf(worker: WorkerView): string {
  if (!worker.connected) return worker.sleep?.since ? "asleep" : "away";
  if (worker.quarantine) return "quarantined";
  if (worker.draining) return "draining";
  const load = loadOf(worker);
  if (load?.in_use) return "in use";
  return load?.withheld && !worker.slots ? "withheld" : "connected";
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
    spareCpu: sum((worker) => loadOf(worker)?.spare_cpu ?? 0),
    inUse: here.filter((worker) => loadOf(worker)?.in_use).length,
  };
}
