/** Tasks of a sweep over two of its parameters: a cell for each pair of values. */
import type { TaskState } from "../../api/types";
import { namesIn, type Scalar, type SweepRow } from "./rows";
import type { Test } from "./where";

export interface Grid {
  xs: Scalar[];
  ys: Scalar[];
  /** The tasks of each cell, a row of cells after the other; several where there are more than two parameters. */
  cells: SweepRow[][];
}

/** What cells are coloured by: `state`, `took`, or a metric as `metric:loss`. */
export type Measure = "state" | "took" | `metric:${string}`;

/** Of a cell with several tasks the state is shown that one would look for first. */
const FIRST: TaskState[] = ["failed", "running", "queued", "cancelled", "succeeded"];

/** The parameters with more than one value: those that a map can be drawn over. */
export function axesOf(rows: readonly SweepRow[]): string[] {
  return namesIn(rows, (row) => row.parameters).filter((name) => valuesOf(rows, name).length > 1);
}

/** All pairs of values; in their cells are the tasks for which the test holds. */
export function gridOf(rows: readonly SweepRow[], x: string, y: string, test: Test = () => true): Grid {
  const [xs, ys] = [valuesOf(rows, x), valuesOf(rows, y)];
  const [columns, lines] = [placesOf(xs), placesOf(ys)];
  const cells: SweepRow[][] = Array.from({ length: xs.length * ys.length }, () => []);
  for (const row of rows) {
    const [column, line] = [columns.get(row.parameters?.[x]), lines.get(row.parameters?.[y])];
    if (column !== undefined && line !== undefined && test(row)) cells[line * xs.length + column]!.push(row);
  }
  return { xs, ys, cells };
}

/** The mean of what the cell's tasks have of a measure that is a number; null if none has it. */
export function numberOf(cell: readonly SweepRow[], measure: Measure): number | null {
  const found = cell.map((row) => numberIn(row, measure)).filter((value) => value !== null);
  return found.length ? found.reduce((sum, value) => sum + value, 0) / found.length : null;
}

export function stateOf(cell: readonly SweepRow[]): TaskState | null {
  return FIRST.find((state) => cell.some((row) => row.state === state)) ?? null;
}

function numberIn(row: SweepRow, measure: Measure): number | null {
  const value = measure === "took" ? row.wall_s : row.metrics?.[measure.slice("metric:".length)];
  return value ?? null;
}

/** Numbers in their order; texts as they come. */
function valuesOf(rows: readonly SweepRow[], name: string): Scalar[] {
  const found = new Set<Scalar>();
  for (const row of rows) {
    const value = row.parameters?.[name];
    if (value !== undefined) found.add(value);
  }
  const values = [...found];
  return values.every((value) => typeof value === "number") ? values.sort((a, b) => a - b) : values;
}

const placesOf = (values: Scalar[]): Map<Scalar | undefined, number> =>
  new Map(values.map((value, place) => [value, place]));
