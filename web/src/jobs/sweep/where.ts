/** Conditions on the tasks of a sweep as people type them: `lr=0.1 loss<0.5 mode!=fast`. */
import type { Scalar, SweepRow } from "./rows";

export type Test = (row: SweepRow) => boolean;

export interface Where {
  test: Test;
  /** What of the text is not understood; empty if all is. */
  problem: string;
}

type Compare = (left: Scalar, right: Scalar) => boolean;

/** Two of the same kind are compared; a text and a number are neither smaller nor larger than each other. */
const COMPARES: Record<string, Compare> = {
  "=": (left, right) => left === right,
  "!=": (left, right) => left !== right,
  "<": (left, right) => typeof left === typeof right && left < right,
  "<=": (left, right) => typeof left === typeof right && left <= right,
  ">": (left, right) => typeof left === typeof right && left > right,
  ">=": (left, right) => typeof left === typeof right && left >= right,
};
const CONDITION = /([^\s=!<>"]+)\s*(!=|<=|>=|=|<|>)\s*("[^"]*"|[^\s"]+)/g;
const FACTS: Record<string, (row: SweepRow) => Scalar | null | undefined> = {
  task: (row) => row.number,
  state: (row) => row.state,
  worker: (row) => row.worker,
  took: (row) => row.wall_s,
  exit: (row) => row.exit_code,
  failures: (row) => row.failures,
};

/** Reads conditions, all of which have to hold, on parameters, metrics and what else a row says. */
export function whereOf(text: string, names: readonly string[]): Where {
  const tests: Test[] = [];
  const unknown: string[] = [];
  const rest = text.replace(CONDITION, (_, name: string, sign: string, word: string) => {
    if (!names.includes(name) && !(name in FACTS)) unknown.push(name);
    tests.push(testOf(name, COMPARES[sign]!, word));
    return "";
  });
  const test: Test = (row) => tests.every((one) => one(row));
  if (rest.trim()) return { test, problem: `“${rest.trim()}” is no condition: write lr=0.1 or loss<0.5` };
  if (!unknown.length) return { test, problem: "" };
  const known = [...names, ...Object.keys(FACTS)].slice(0, 12).join(", ");
  return { test, problem: `nothing here is called ${unknown.join(" or ")}: there is ${known}` };
}

function testOf(name: string, compare: Compare, word: string): Test {
  const isQuoted = word.startsWith('"');
  const text = isQuoted ? word.slice(1, -1) : word;
  const number = isQuoted || text.trim() === "" ? NaN : Number(text);
  return (row) => {
    const value = row.parameters?.[name] ?? row.metrics?.[name] ?? FACTS[name]?.(row);
    if (value === null || value === undefined) return false;
    if (typeof value === "number") return !Number.isNaN(number) && compare(value, number);
    return compare(String(value), text);
  };
}
