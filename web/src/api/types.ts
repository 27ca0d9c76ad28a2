/** The words of the REST API, as the master's own OpenAPI document describes them (schema.d.ts is made from it). */
import type { components } from "./schema";
import type { InSeconds } from "./times";

type Schemas = InSeconds<components["schemas"]>;

export type JobState = Schemas["JobState"];
export type TaskState = Schemas["TaskState"];
export type AttemptState = Schemas["AttemptState"];

export type Counts = Schemas["Counts"];
export type Whoami = Schemas["Whoami"];
export type Period = Schemas["Period"];
export type TaskView = Schemas["TaskView"];
export type TaskDetail = Schemas["TaskDetail"];
export type AttemptView = Schemas["AttemptView"];
export type GridChange = Schemas["GridChange"];
export type PassingReport = Schemas["PassingReport"];
export type Passing = Schemas["Passing"];
export type Submission = Schemas["Submission"];
export type Timeline = Schemas["Timeline"];
/** A job's tasks in columns. */
export type SweepColumns = Schemas["SweepColumns"];
export type Samples = Schemas["Samples"];
export type WorkerSamples = Schemas["WorkerSamples"];
export type Queued = Schemas["QueuedJob"];
/** A time in which a job's last task was held. */
export type Hold = Schemas["HeldTime"];
export type Facts = Schemas["Facts"];
export type Load = Schemas["Load"];
export type Eta = Schemas["Eta"];
export type JobPage = Schemas["JobPage"];
export type LiveTotals = Schemas["LiveTotals"];
export type JobView = Schemas["JobView"];
export type WorkerView = Schemas["WorkerView"];
export type NetworkView = Schemas["NetworkView"];
export type NetworkNode = Schemas["NetworkNodeView"];
export type FileFlow = Schemas["FileFlow"];
export type LastHour = Schemas["LastHour"];
/** Planned starts of gangs that wait. */
export type WaitingPlans = Schemas["WaitingPlans"];
export type WaitingPlan = Schemas["WaitingPlan"];
export type ForecastReport = Schemas["ForecastReport"];
export type JobDetail = Schemas["JobDetail"];
/** Failed tasks of several jobs with one reason. */
export type FailureKind = Schemas["FailureKind"];
export type FailureReport = Schemas["FailureReport"];
/** A line of a task's output that a search has found. */
export type FoundLine = Schemas["FoundLine"];
export type Explanation = Schemas["Explanation"];
/** Utilisation, and waits of jobs on several nodes. */
export type ParallelReport = Schemas["ParallelReport"];
export type HistoryReport = Schemas["HistoryReport"];
export type HistoryLine = Schemas["HistoryLine"];
export type SharesView = Schemas["SharesView"];
export type LimitUse = Schemas["LimitUse"];
/** Health of the master. */
export type MasterView = Schemas["MasterView"];
export type UserCost = Schemas["UserCost"];
export type TokenView = Schemas["TokenView"];
export type TokenCreated = Schemas["TokenCreated"];
export type Role = TokenView["role"];
export type UserShare = Schemas["UserShare"];
/** A file that a task has left. */
export type OutputFile = Schemas["OutputFile"];
/** Preview of a submission. */
export type Preview = Schemas["Preview"];

export interface Page<Item> {
  items: Item[];
  next: string | null;
}

/** A job as it is submitted. */
export type JobSpec = Partial<Schemas["JobSpec"]>;
