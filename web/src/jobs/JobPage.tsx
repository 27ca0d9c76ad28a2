import { get } from "../api/client";
import type { Explanation, JobDetail, TaskDetail } from "../api/types";
import { now } from "../live/clock";
import { anyJob, thisJob, useResource } from "../live/resource";
import { Link } from "../router";
import { maySubmit } from "../session/session";
import { LogsSection } from "../tasks/LogsSection";
import { OutputsSection } from "../tasks/OutputsSection";
import { Gantt } from "../timeline/Gantt";
import { amount, count, cpuTime, duration, moment, percent, period, plural } from "../text/human";
import { Chip } from "../ui/Chip";
import { Facts } from "../ui/Facts";
import { Progress } from "../ui/Progress";
import { Section } from "../ui/Section";
import { Shown } from "../ui/states";
import { Flows } from "../workers/Flows";
import { EtaText } from "./EtaText";
import { Explained } from "./Explained";
import { Differing, JobLinks } from "./Hold";
import { isOver, sizeOf } from "./jobs";
import { Download } from "./Download";
import { LinesSection } from "./LinesSection";
import { SpecSection } from "./SpecSection";
import { Steering } from "./Steering";
import { Swatch } from "../ui/Swatch";
import { MapSection } from "./sweep/MapSection";
import { TasksSection } from "./TasksSection";

const GANTT_PX = 260;
const SHORTEST_SPAN_S = 60;

export function JobPage({ job: id }: { job: number }) {
  const detail = useResource(`jobs/${id}`, (signal) => get<JobDetail>(`/jobs/${id}`, {}, signal), thisJob(id));
  const why = useResource(
    `jobs/${id}/explain`,
    (signal) => get<Explanation>(`/jobs/${id}/explain`, {}, signal),
    anyJob,
  );
  return (
    <Shown of={detail} what={`job ${id}`}>
      {(job) => (
        <>
          <header class="title">
            <h1>
              <Swatch job={id} /> Job {id} <span class="name">{job.name}</span>
            </h1>
            <Chip state={job.condition} />
            <Differing job={job} />
            <span class="buttons end">
              {isOver(job) && <Download job={job} />}
              {maySubmit.value && (
                <Link to={`/submit?like=${id}`} class="button plain">
                  Submit again
                </Link>
              )}
              <Steering job={job} onDone={detail.reload} />
            </span>
          </header>
          {why.data && <Explained explanation={why.data} own={id} />}
          {job.task_count > 1 && <Progress tasks={job.tasks} total={job.task_count} />}
          {job.task_count === 1 && <OnlyTask job={id} />}
          <JobFacts job={job} />
          {job.started_at !== null && <JobTimeline job={job} />}
          {job.files_coming && job.files_coming.length > 0 && (
            <Section title="Files on their way">
              <Flows flows={job.files_coming} />
            </Section>
          )}
          {isSwept(job) && <MapSection job={job} />}
          <TasksSection job={job} />
          {job.task_count > 1 && job.started_at !== null && <LinesSection job={id} />}
          <SpecSection job={job} />
        </>
      )}
    </Shown>
  );
}

/** A job of one task opens at what it printed and wrote. */
function OnlyTask({ job }: { job: number }) {
  const path = `/jobs/${job}/tasks/1`;
  const task = useResource(path, (signal) => get<TaskDetail>(path, {}, signal), thisJob(job));
  if (!task.data?.attempts.length) return null;
  return (
    <>
      <LogsSection path={path} task={task.data} />
      <OutputsSection path={path} task={task.data} />
    </>
  );
}

/** Whether its tasks may differ in two parameters: which of them do is seen once they are read. */
function isSwept({ spec, task_count }: JobDetail): boolean {
  const rule = spec.parameters;
  if (task_count < 4 || !(rule || spec.tasks)) return false;
  return !rule || "rows" in rule || "file" in rule || Object.keys(rule).length > 1;
}

function JobFacts({ job }: { job: JobDetail }) {
  const after = job.spec.after ?? [];
  return (
    <Facts
      of={[
        ["User", job.user],
        ["Size", sizeOf(job) + spreadOf(job)],
        ["Tasks", count(job.task_count)],
        ["Submitted", moment(job.submitted_at)],
        ["Depends on", after.length > 0 && <JobLinks jobs={after} />],
        ["Entered the grid", after.length > 0 && job.entered_at && moment(job.entered_at)],
        ["Waited", period(job.waited, now.value)],
        ["Started", job.started_at !== null && moment(job.started_at)],
        isOver(job) ? ["Ended", moment(job.finished_at)] : ["ETA", <EtaText eta={job.eta} note={job.eta_note} />],
        ["Progress", job.progress !== null && job.progress !== undefined && percent(job.progress, 1)],
        ["Took", job.took && period(job.took, now.value)],
        ["Held for", job.was_held && period(job.was_held, now.value)],
        ["Order", job.order],
        ["Attempts per task", `at most ${job.max_attempts}`],
        ["Replicas", job.max_replicas === null ? "unlimited" : `at most ${job.max_replicas}`],
        ["At once", job.max_running !== null && job.max_running !== undefined && `at most ${job.max_running} tasks`],
        ["Needs", needsOf(job.spec.requires?.needs)],
        ["GPUs", gpusOf(job.spec.requires)],
        ["Nodes", job.spec.nodes && job.spec.nodes > 1 && `${job.spec.nodes} for each task`],
        ["Planned start", job.plan && !job.plan.started_at && plannedStart(job.plan)],
        ["First promised for", job.plan?.promised_at && moment(job.plan.promised_at)],
        ["Promise broken", job.plan?.broken_reason || null],
        ["Time limit", job.spec.timeout_s && duration(job.spec.timeout_s)],
        ["Quorum", job.spec.quorum && `${job.spec.quorum} workers on each result`],
        ["Notification", job.notification || null],
        ...ledgerFacts(job.ledger),
      ]}
    />
  );
}

function needsOf(needs: Record<string, number> | undefined): string | null {
  const each = Object.entries(needs ?? {}).map(([name, units]) => `${units} ${name}`);
  return each.join(", ") || null;
}

function gpusOf(requires: JobDetail["spec"]["requires"]): string | null {
  if (!requires?.gpus) return null;
  const kind = [
    requires.gpu_model,
    requires.gpu_memory_bytes && `at least ${amount(requires.gpu_memory_bytes)}`,
    requires.gpu_capability && `CUDA ${requires.gpu_capability}`,
  ];
  return [`${requires.gpus} for each task`, ...kind].filter(Boolean).join(", ");
}

/** The kind of a plan, its start and its workers. */
function plannedStart({ kind, start_at, machines }: NonNullable<JobDetail["plan"]>): string {
  if (start_at === null) return "none: too few workers are there";
  const where = machines.length > 0 ? `on ${machines.join(", ")}` : "on workers that are not chosen yet";
  return `${moment(start_at)} (${kind}) ${where}`;
}

/** Describes the predicted work of one task, with its range. */
function spreadOf({ predicted }: JobDetail): string {
  if (!predicted) return "";
  const range = `${duration(predicted.p10)} to ${duration(predicted.p90)}`;
  return `, a task ${range} by ${plural(predicted.runs, "earlier run")}`;
}

/** CPU time of the job by outcome, in seconds; each includes that of replicas. */
function ledgerFacts(ledger: JobDetail["ledger"]): [string, string | false][] {
  const { useful_cpu_s = 0, wasted_cpu_s = 0, lost_cpu_s = 0, replicated_cpu_s = 0, won_cpu_s = 0 } = ledger ?? {};
  const { kept_cpu_s = 0, checkpoints = 0, checkpoint_bytes = 0, checkpoint_held_s = 0 } = ledger ?? {};
  const won = won_cpu_s ? `, ${cpuTime(won_cpu_s)} of it in results` : "";
  return [
    ["Useful CPU", cpuTime(useful_cpu_s)],
    ["Kept CPU", kept_cpu_s > 0 && `${cpuTime(kept_cpu_s)} in checkpoints`],
    [
      "Checkpoints",
      checkpoints > 0 &&
        `${count(checkpoints)}, ${amount(checkpoint_bytes)}, tasks stopped for ${cpuTime(checkpoint_held_s)}`,
    ],
    ["Wasted CPU", wasted_cpu_s > 0 && cpuTime(wasted_cpu_s)],
    ["Lost CPU", lost_cpu_s > 0 && cpuTime(lost_cpu_s)],
    ["CPU of replicas", replicated_cpu_s > 0 && cpuTime(replicated_cpu_s) + won],
  ];
}

/** From the job's start to its end, or to now. */
function JobTimeline({ job }: { job: JobDetail }) {
  const started = job.started_at!;
  const end = job.finished_at;
  const span = Math.max(SHORTEST_SPAN_S, ((end ?? now.peek()) - started) * 1.1);
  const margin = end === null ? 0 : (end - started) * 0.05 + 1;
  const past = end === null ? null : { since: started - margin, until: end + margin };
  return (
    <Section
      title="Attempts"
      aside={
        <Link to={past ? `/timeline?since=${past.since}&until=${past.until}` : "/timeline"}>with all other jobs</Link>
      }
    >
      <Gantt key={String(end)} filter={{ job: job.id }} span={span} past={past} maxHeight={GANTT_PX} />
    </Section>
  );
}
