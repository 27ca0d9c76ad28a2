/** The tasks of a job, worked out here as the master does it: a sweep is its rule, a task is made when it is looked at. */
import type { Row } from "./table";
import { lengthOf, type Scalar, valueAt, type Values } from "./values";

export interface SweptTask {
  number: number;
  command: string[];
  parameters: Record<string, Scalar>;
}

export type Grid = Record<string, Values>;
export type Parameters = Grid | { rows: Row[] };

const PLACEHOLDER = /\{([A-Za-z_][A-Za-z0-9_]{0,63})\}/g;

function isTable(parameters: Parameters): parameters is { rows: Row[] } {
  const { rows } = parameters as { rows?: unknown };
  return Array.isArray(rows) && typeof rows[0] === "object" && rows[0] !== null;
}

export function taskCount(parameters: Parameters | null): number {
  if (!parameters) return 1;
  if (isTable(parameters)) return parameters.rows.length;
  return Object.values(parameters).reduce((count, values) => count * lengthOf(values), 1);
}

/** The `number`-th task, from 1; of several parameters the last one varies fastest. */
export function taskAt(command: readonly string[], parameters: Parameters | null, number: number): SweptTask {
  const chosen = parametersAt(parameters, number - 1);
  return { number, parameters: chosen, command: command.map((argument) => fill(argument, chosen)) };
}

/** Names in braces that no parameter has: they stay as they are, which is seldom meant. */
export function unknownNames(command: readonly string[], parameters: Parameters | null): string[] {
  const known = Object.keys(parametersAt(parameters, 0));
  const named = command.flatMap((argument) => [...argument.matchAll(PLACEHOLDER)].map((match) => match[1]!));
  return [...new Set(named)].filter((name) => !known.includes(name));
}

function parametersAt(parameters: Parameters | null, index: number): Record<string, Scalar> {
  if (!parameters) return {};
  if (isTable(parameters)) return parameters.rows[index]!;
  const names = Object.keys(parameters);
  const chosen: [string, Scalar][] = [];
  for (const name of names.toReversed()) {
    const values = parameters[name]!;
    chosen.unshift([name, valueAt(values, index % lengthOf(values))]);
    index = Math.floor(index / lengthOf(values));
  }
  return Object.fromEntries(chosen);
}

function fill(argument: string, parameters: Record<string, Scalar>): string {
  return argument.replace(PLACEHOLDER, (whole, name: string) =>
    name in parameters ? String(parameters[name]) : whole,
  );
}
