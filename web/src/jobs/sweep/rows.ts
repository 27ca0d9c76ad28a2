/** The tasks of a sweep, as rows made of the columns that the master sends. */
import { get } from "../../api/client";
import type { SweepColumns, TaskView } from "../../api/types";
import { type Resource, thisJob, useResource } from "../../live/resource";

/** Of a sweep with more tasks only the first ones are sorted, filtered and drawn. */
export const MOST_SWEPT = 20_000;

export type Scalar = string | number | boolean;

export interface SweepRow extends Pick<
  TaskView,
  "id" | "number" | "state" | "failures" | "worker" | "exit_code" | "reason" | "began_at" | "wall_s" | "prefetched"
> {
  finished_at?: number | null;
  parameters?: Record<string, Scalar> | null;
  metrics?: Record<string, number> | null;
}

/** The tasks of a job in one reading; null: they are not wanted now. */
export function useSweep(job: number | null): Resource<SweepRow[]> {
  const key = job === null ? null : `jobs/${job}/sweep`;
  return useResource(
    key,
    async (signal) => rowsOf(job!, await get<SweepColumns>(`/jobs/${job}/sweep`, {}, signal)),
    thisJob(job ?? 0),
  );
}

export function rowsOf(job: number, columns: SweepColumns): SweepRow[] {
  return columns.number.map((number, place) => ({
    id: `${job}.${number}`,
    number,
    state: columns.state[place]!,
    prefetched: columns.prefetched[place] === 1,
    worker: columns.worker[place] ?? null,
    began_at: columns.began[place] ?? null,
    wall_s: columns.wall_s[place] ?? null,
    exit_code: columns.exit_code[place] ?? null,
    failures: columns.failures[place]!,
    reason: columns.reason[place]!,
    parameters: at(columns.parameters, place),
    metrics: at(columns.metrics as Record<string, (number | null)[]>, place),
  }));
}

/** The values of one task, without the names that it does not have. */
function at<Value>(columns: Record<string, (Value | null)[]>, place: number): Record<string, Value> {
  const found: Record<string, Value> = {};
  for (const [name, values] of Object.entries(columns)) {
    const value = values[place];
    if (value !== null && value !== undefined) found[name] = value;
  }
  return found;
}

type Named = Record<string, Scalar> | null | undefined;

/** The names that occur in any row, in the order in which they are met. */
export function namesIn(rows: readonly SweepRow[], of: (row: SweepRow) => Named): string[] {
  const names = new Set<string>();
  for (const row of rows) for (const name in of(row) ?? {}) names.add(name);
  return [...names];
}

/** All names by which a task can be looked for. */
export const allNamesIn = (rows: readonly SweepRow[]): string[] => [
  ...namesIn(rows, (row) => row.parameters),
  ...namesIn(rows, (row) => row.metrics),
];

/** A number in at most six digits, anything else as it is. */
export function shown(value: Scalar | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value);
}
