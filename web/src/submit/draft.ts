/** The state of the form, and the job that it describes or its mistakes by field. */
import type { JobSpec } from "../api/types";
import { bytes, seconds } from "./measures";
import { type Parameters, taskCount } from "./sweep";
import type { Inputs } from "./inputs";
import { rowsOf } from "./table";
import { isRange, type Values, valuesOf } from "./values";
import { lineOf, wordsOf } from "./words";

export interface ParameterDraft {
  name: string;
  values: string;
}

export interface Draft {
  name: string;
  command: string;
  sweep: "grid" | "table";
  parameters: ParameterDraft[];
  table: string;
  size: string;
  timeout: string;
  killAfter: string;
  retryDelay: string;
  attempts: string;
  replicas: string;
  nodes: string;
  os: string;
  memory: string;
  slots: string;
  labels: string;
  gpus: string;
  needs: string;
  exclusive: boolean;
  network: boolean;
  environment: string;
  secrets: string;
  packages: string;
  python: string;
  builds: boolean;
  image: string;
  notify: string;
  outputs: string;
  optionalOutputs: string;
  after: string;
  folder: string;
}

export type Field = keyof Draft;
export type Mistakes = Partial<Record<Field, string>>;

export interface Meant {
  spec: JobSpec;
  command: string[];
  parameters: Parameters | null;
  /** The list of packages, which is a file of the job; null: there is none. */
  packages: string | null;
  mistakes: Mistakes;
}

export const EMPTY: Draft = {
  name: "",
  command: "",
  sweep: "grid",
  parameters: [],
  table: "",
  size: "",
  timeout: "",
  killAfter: "",
  retryDelay: "",
  attempts: "",
  replicas: "",
  nodes: "",
  os: "",
  memory: "",
  slots: "",
  labels: "",
  gpus: "",
  needs: "",
  exclusive: false,
  network: false,
  environment: "",
  secrets: "",
  packages: "",
  python: "",
  builds: false,
  image: "",
  notify: "",
  outputs: "",
  optionalOutputs: "",
  after: "",
  folder: "",
};

const OTHER_FILE = /^(-r|--requirement|-c|--constraint|-e|--editable|\.|\/|file:)/;
const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,63}$/;
const NO_FIELD = ["tasks", "function", "quorum", "replica_budget_s", "max_fails", "session", "after_state"];
/** Events of which a job's user is notified by default. */
const EVENTS = 4;
const MOST_TASKS = 100_000_000;

/** `inputs`: files that are there already, by the path that a task finds them under. */
export function meaningOf(draft: Draft, inputs: Inputs = {}): Meant {
  const mistakes: Mistakes = {};
  const read = <T>(field: Field, make: () => T): T | undefined => {
    try {
      return make();
    } catch (error) {
      mistakes[field] = (error as Error).message;
      return undefined;
    }
  };
  const optional = <T>(field: Field, make: (text: string) => T): T | undefined => {
    const text = String(draft[field]).trim();
    return text ? read(field, () => make(text)) : undefined;
  };
  const command = read("command", () => commandOf(draft.command)) ?? [];
  const parameters = read(draft.sweep === "table" ? "table" : "parameters", () => parametersOf(draft)) ?? null;
  const outputs = [
    ...(optional("outputs", patternsOf) ?? []),
    ...(optional("optionalOutputs", patternsOf) ?? []).map((path) => ({ path, optional: true })),
  ];
  const packages = optional("packages", packagesOf) ?? null;
  const environment = filled({ python: optional("python", versionOf), builds: draft.builds || undefined });
  if (environment && !packages) mistakes.packages = "name the packages of the environment that this is about";
  const spec = filled({
    name: draft.name.trim(),
    command,
    parameters: parameters ?? undefined,
    size: optional("size", (text) => (text === "unknown" ? text : positive(seconds)(text))),
    folder: draft.folder.trim(),
    nodes: optional("nodes", whole),
    timeout_s: optional("timeout", positive(seconds)),
    kill_after_s: optional("killAfter", seconds),
    retry_delay_s: optional("retryDelay", seconds),
    max_attempts: optional("attempts", whole),
    max_replicas: optional("replicas", (text) => (text === "unlimited" ? text : whole(text))),
    environment: optional("environment", environmentOf),
    secrets: optional("secrets", secretsOf),
    notify: optional("notify", notifyOf),
    inputs: Object.keys(inputs).length ? inputs : undefined,
    outputs: outputs.length ? outputs : undefined,
    after: optional("after", (text) => text.split(/[\s,]+/).map(whole)),
    requires: filled({
      os: draft.os || undefined,
      memory_bytes: optional("memory", bytes),
      slots: optional("slots", whole),
      labels: optional("labels", (text) => text.split(/[\s,]+/)),
      gpus: optional("gpus", gpusOf),
      needs: optional("needs", needsOf),
      exclusive: draft.exclusive || undefined,
      network: draft.network || undefined,
      software: draft.image.trim() ? { image: draft.image.trim() } : environment,
    }),
  }) as JobSpec;
  if (packages && draft.image.trim()) mistakes.packages = "give packages or an image: an image has its own";
  return { spec, command, parameters, packages, mistakes };
}

/** Parts of a job that the form has no field for. */
export function leftOut(spec: JobSpec): string[] {
  const parts = Object.entries(spec).filter(([name, value]) => NO_FIELD.includes(name) && isGiven(value));
  return [
    ...parts.map(([name]) => name),
    ...hiddenIn(spec).map((name) => `the value of ${name}`),
    ...(isRowFile(spec.parameters) ? ["parameters from a file"] : []),
    ...(Object.values(spec.inputs ?? {}).some(isNoFile) ? ["links and empty folders among its files"] : []),
    ...(spec.requires?.software?.packages ? ["packages"] : []),
    ...(spec.requires?.gpu_memory_bytes || spec.requires?.gpu_model || spec.requires?.gpu_capability
      ? ["the kind of its GPUs"]
      : []),
    ...((spec.notify?.on?.length ?? EVENTS) < EVENTS ? ["the events of its notification"] : []),
  ];
}

/** Returns the form of an earlier job, as far as the form can express it. */
export function draftOf(spec: JobSpec): Draft {
  const { requires } = spec;
  const parameters = isRowFile(spec.parameters) ? null : spec.parameters;
  const isTableGiven =
    parameters && "rows" in parameters && Array.isArray(parameters.rows) && typeof parameters.rows[0] === "object";
  return {
    ...EMPTY,
    name: spec.name ?? "",
    command: lineOf(spec.command ?? []),
    sweep: isTableGiven ? "table" : "grid",
    table: isTableGiven ? csvOf(parameters.rows as Record<string, unknown>[]) : "",
    parameters: isTableGiven
      ? []
      : Object.entries(parameters ?? {}).map(([name, values]) => ({ name, values: textOf(values as Values) })),
    size: spec.size === "unknown" ? "unknown" : text(spec.size, "s"),
    folder: spec.folder ?? "",
    timeout: text(spec.timeout_s, "s"),
    killAfter: text(spec.kill_after_s, "s"),
    retryDelay: text(spec.retry_delay_s, "s"),
    attempts: text(spec.max_attempts),
    replicas: text(spec.max_replicas),
    nodes: spec.nodes && spec.nodes > 1 ? String(spec.nodes) : "",
    os: requires?.os ?? "",
    memory: text(requires?.memory_bytes || null),
    slots: requires?.slots && requires.slots > 1 ? String(requires.slots) : "",
    labels: (requires?.labels ?? []).join(" "),
    gpus: text(requires?.gpus || null),
    needs: Object.entries(requires?.needs ?? {})
      .map(([name, units]) => (units === 1 ? name : `${name}=${units}`))
      .join(" "),
    exclusive: requires?.exclusive ?? false,
    network: requires?.network ?? false,
    environment: linesOf(Object.entries(spec.environment ?? {}).filter(([, value]) => value !== HIDDEN)),
    secrets: linesOf(hiddenIn(spec).map((name) => [name, ""])),
    python: requires?.software?.python ?? "",
    builds: requires?.software?.builds ?? false,
    image: requires?.software?.image ?? "",
    notify: spec.notify?.webhook ?? spec.notify?.command ?? "",
    outputs: patternsIn(spec, false),
    optionalOutputs: patternsIn(spec, true),
  };
}

/** Patterns between spaces or commas, but not commas within braces: `*.{csv,log}` is one. */
const patternsOf = (text: string): string[] => text.split(/[\s,]+(?![^{}]*\})/);

const patternsIn = (spec: JobSpec, isOptional: boolean): string =>
  (spec.outputs ?? [])
    .map((one) => (typeof one === "string" ? { path: one, optional: false } : one))
    .filter((one) => Boolean(one.optional) === isOptional)
    .map((one) => one.path)
    .join(" ");

const isNoFile = (input: Inputs[string]): boolean => typeof input !== "string" && !("file" in input);

/** Its lines are on the master, and may be millions. */
const isRowFile = (parameters: JobSpec["parameters"]): boolean =>
  typeof (parameters as { file?: unknown } | null | undefined)?.file === "string";

function commandOf(line: string): string[] {
  const words = wordsOf(line);
  if (!words.length) throw new Error("give the command that each task runs");
  return words;
}

function parametersOf(draft: Draft): Parameters | null {
  if (draft.sweep === "table") return draft.table.trim() ? { rows: rowsOf(draft.table) } : null;
  const given = draft.parameters.filter(({ name, values }) => name.trim() || values.trim());
  if (!given.length) return null;
  const grid: Record<string, Values> = {};
  for (const { name, values } of given) {
    if (!NAME.test(name.trim()))
      throw new Error(`“${name}” cannot be a parameter’s name: letters, digits and _ only`);
    if (name.trim() in grid) throw new Error(`${name} is given twice`);
    grid[name.trim()] = explained(name, () => valuesOf(values));
  }
  if (taskCount(grid) > MOST_TASKS)
    throw new Error(`${taskCount(grid).toLocaleString("en")} tasks are more than ${MOST_TASKS.toLocaleString("en")}`);
  return grid;
}

function explained<T>(name: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw new Error(`${name}: ${(error as Error).message}`);
  }
}

/** A whole number of GPUs, or a part of one. */
function gpusOf(text: string): number {
  const gpus = Number(text);
  if (!(gpus > 0 && (Number.isInteger(gpus) || gpus < 1)))
    throw new Error("give a whole number of GPUs, or a part of one such as 0.5");
  return gpus;
}

function needsOf(text: string): Record<string, number> {
  const needs = text.split(/[\s,]+/).map((one): [string, number] => {
    const [name, units = "1", ...more] = one.split("=");
    if (!name || more.length) throw new Error(`give NAME or NAME=UNITS, not “${one}”`);
    return [name, explained(name, () => whole(units))];
  });
  return Object.fromEntries(needs);
}

function environmentOf(lines: string): Record<string, string> {
  const pairs = lines.split("\n").filter((line) => line.trim());
  return Object.fromEntries(
    pairs.map((line) => {
      const at = line.indexOf("=");
      if (at < 1) throw new Error(`give NAME=VALUE on each line, not “${line}”`);
      return [line.slice(0, at).trim(), line.slice(at + 1)];
    }),
  );
}

/** What the master answers in place of a secret, or of a variable of another user's job. */
const HIDDEN = "(hidden)";

const hiddenIn = ({ environment }: JobSpec): string[] =>
  Object.entries(environment ?? {}).flatMap(([name, value]) => (value === HIDDEN ? [name] : []));

const linesOf = (pairs: [string, string][]): string => pairs.map(([name, value]) => `${name}=${value}`).join("\n");

function secretsOf(lines: string): Record<string, string> {
  const secrets = environmentOf(lines);
  const empty = Object.keys(secrets).find((name) => !secrets[name]);
  if (empty) throw new Error(`give the value of ${empty}: nobody is shown it again`);
  return secrets;
}

function versionOf(text: string): string {
  if (!/^3\.\d{1,2}$/.test(text)) throw new Error("give a version such as 3.12");
  return text;
}

/** A list as pip reads it. Workers have no other files of this computer. */
function packagesOf(text: string): string {
  const lines = text.split("\n").map((line) => line.trim());
  const wrong = lines.find((line) => OTHER_FILE.test(line));
  if (wrong) throw new Error(`workers do not have the file that this line names: ${wrong}`);
  if (!lines.some((line) => line && !/^[#-]/.test(line))) throw new Error("name a package, such as numpy==2.3.1");
  return lines.map((line) => `${line}\n`).join("");
}

/** A URL gets a signed POST; any other word is a command that the master's settings name. */
function notifyOf(text: string): { webhook: string } | { command: string } {
  if (/\s/.test(text)) throw new Error("give one URL, or the name of one of the master's commands");
  return /^https?:\/\//.test(text) ? { webhook: text } : { command: text };
}

const isGiven = (value: unknown): boolean =>
  typeof value === "object" && value !== null ? Object.keys(value).length > 0 : Boolean(value);

function whole(text: string): number {
  if (!/^\d{1,9}$/.test(text) || Number(text) < 1) throw new Error("give a whole number from 1 on");
  return Number(text);
}

const positive = (read: (text: string) => number) => (text: string) => {
  const value = read(text);
  if (value <= 0) throw new Error("give more than nothing");
  return value;
};

function filled<T extends object>(object: T): Partial<T> | undefined {
  const kept = Object.entries(object).filter(([, value]) => value !== undefined && value !== "");
  return kept.length ? (Object.fromEntries(kept) as Partial<T>) : undefined;
}

const text = (value: unknown, unit = ""): string =>
  value === null || value === undefined ? "" : `${String(value)}${unit}`;

function textOf(values: Values): string {
  if (!isRange(values))
    return values
      .map((value) => (typeof value === "string" && /[,"'\s]/.test(value) ? `"${value}"` : String(value)))
      .join(", ");
  const [first, last, step] = values.range;
  return `${first}..${last}${step && step !== 1 ? `:${step}` : ""}`;
}

function csvOf(rows: Record<string, unknown>[]): string {
  const names = Object.keys(rows[0] ?? {});
  const cell = (value: unknown): string =>
    /[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value);
  return [names.join(","), ...rows.map((row) => names.map((name) => cell(row[name])).join(","))].join("\n");
}
