/**
 * The words of the REST API, as the master's own OpenAPI document describes them (schema.d.ts is made from it).
 *
 * `Partial` ones are of masters that have them: what an answer leaves out is not shown.
 */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type JobState = Schemas["JobState"] | "waiting";
export type TaskState = Schemas["TaskState"];
export type AttemptState = Schemas["AttemptState"];

export type Counts = Schemas["Counts"];
export type Whoami = Schemas["Whoami"];
export type TaskView = Schemas["TaskView"];
export type TaskDetail = Schemas["TaskDetail"];
export type AttemptView = Schemas["AttemptView"];
export type GridChange = Schemas["GridChange"];
export type PassingReport = Schemas["PassingReport"];
export type Passing = Schemas["Passing"];
export type Submission = Schemas["Submission"];
export type Timeline = Schemas["Timeline"];
export type Samples = Schemas["Samples"];
export type Queued = Schemas["QueuedJob"];
/** A time in which a job's last task was held. */
export type Hold = Schemas["HeldTime"];
export type Facts = Schemas["Facts"];
export type Load = Schemas["Load"];

export interface Page<Item> {
  items: Item[];
  next: string | null;
}

/** When a job will have ended: in half of all cases, and in nine of ten, by then. */
export interface Eta {
  p50_at: number;
  p90_at: number;
}

/** What the computation of a job was good for, in CPU-seconds. */
export interface Ledger {
  useful_cpu_s: number;
  replicated_cpu_s: number;
  lost_cpu_s: number;
}

interface JobForecast {
  eta: Eta | null;
  waiting_for: number[];
  ledger: Ledger;
}

export type JobView = Omit<Schemas["JobView"], "state"> & { state: JobState } & Partial<JobForecast>;
export type JobDetail = JobView & { spec: JobSpec };

/** A job as it is submitted; the newer keys only where the master's document has them. */
export type JobSpec = Partial<Schemas["JobSpec"]> & {
  inputs?: Record<string, string>;
  outputs?: string[];
  after?: number[];
};

interface WorkerStanding {
  probation_until: number | null;
  speed: number;
  delay_s: number;
  throughput_bytes_s: number;
  promised: number;
  delivered: number;
}

export type WorkerView = Schemas["WorkerView"] & Partial<WorkerStanding>;

export type Reason = Schemas["Reason"] & { job?: number | null };
export type Explanation = Omit<Schemas["Explanation"], "reasons"> & { reasons: Reason[] };

/** A file that a task has left. */
export interface OutputFile {
  path: string;
  sha256: string;
  size_bytes: number;
}

export interface PreviewTask {
  number: number;
  command: string[];
  parameters: Record<string, unknown>;
}

/** What a job would become, were it submitted. */
export interface Preview {
  task_count: number;
  size: number | null;
  tasks: PreviewTask[];
  warnings: string[];
  expected: { p50_s: number; p90_s: number } | null;
}
