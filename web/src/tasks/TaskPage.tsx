import { get } from "../api/client";
import type { Explanation, TaskDetail } from "../api/types";
import { now } from "../live/clock";
import { anyJob, thisJob, useResource } from "../live/resource";
import { Link } from "../router";
import { moment } from "../text/human";
import { Chip } from "../ui/Chip";
import { Facts } from "../ui/Facts";
import { Section } from "../ui/Section";
import { Shown } from "../ui/states";
import { AttemptsSection } from "./AttemptsSection";
import { Explained } from "../jobs/Explained";
import { LogsSection } from "./LogsSection";
import { OutputsSection } from "./OutputsSection";
import { ranksOf, tookOfTask, workerOf } from "./runs";

interface Props {
  job: number;
  task: number;
}

export function TaskPage({ job, task: number }: Props) {
  const path = `/jobs/${job}/tasks/${number}`;
  const detail = useResource(path, (signal) => get<TaskDetail>(path, {}, signal), thisJob(job));
  const why = useResource(`${path}/explain`, (signal) => get<Explanation>(`${path}/explain`, {}, signal), anyJob);
  return (
    <Shown of={detail} what={`task ${job}.${number}`}>
      {(task) => (
        <>
          <header class="title">
            <h1>
              Task {task.id}{" "}
              <span class="name">
                of <Link to={`/jobs/${job}`}>job {job}</Link>
              </span>
            </h1>
            <Chip state={task.state} />
            {task.mismatch && <Chip state="mismatch">its results differ</Chip>}
            <Neighbours job={job} task={number} last={task.job_task_count ?? null} />
          </header>
          {why.data && <Explained explanation={why.data} />}
          <pre class="code" tabIndex={0}>
            {task.command.map(quoted).join(" ")}
          </pre>
          <Facts
            of={[
              ...Object.entries(task.parameters).map(([name, value]): [string, string] => [name, String(value)]),
              ["Started", task.started_at !== null && moment(task.started_at)],
              ["Took", task.began_at !== null && tookOfTask(task, now.value)],
              ["Worker", task.worker && !isGang(task) && <WorkerLink name={task.worker} />],
              ["Workers, by rank", isGang(task) && <WorkersOfGang task={task} />],
              ["Exit code", task.exit_code],
              ["Failures", task.failures > 0 && task.failures],
              ["Reason", task.reason || null],
            ]}
          />
          <AttemptsSection attempts={task.attempts} />
          <VotesSection task={task} />
          <LogsSection path={path} task={task} />
          <OutputsSection path={path} task={task} />
        </>
      )}
    </Shown>
  );
}

const isGang = ({ attempts }: TaskDetail): boolean => ranksOf(attempts).length > 0;

const WorkerLink = ({ name }: { name: string }) => <Link to={`/workers/${name}`}>{name}</Link>;

/** Those of its latest launch. */
function WorkersOfGang({ task }: { task: TaskDetail }) {
  return (
    <>
      {ranksOf(task.attempts).map((rank) => (
        <span key={rank}>
          {rank} <WorkerLink name={workerOf(task, rank)} />{" "}
        </span>
      ))}
    </>
  );
}

/** Compared results of the attempts: equal digests mean equal results. */
function VotesSection({ task }: { task: TaskDetail }) {
  if (!task.votes || task.votes.length < 2) return null;
  return (
    <Section title="Results compared">
      <ul class="inline">
        {task.votes.map((vote) => (
          <li key={vote.attempt}>
            <span class="number">
              {task.id}.{vote.attempt}
            </span>{" "}
            on <Link to={`/workers/${vote.worker}`}>{vote.worker}</Link>: <code>{vote.digest}</code>
          </li>
        ))}
      </ul>
    </Section>
  );
}

function Neighbours({ job, task, last }: Props & { last: number | null }) {
  return (
    <nav class="buttons end" aria-label="Other tasks">
      {task > 1 && (
        <Link class="button plain" to={`/jobs/${job}/tasks/${task - 1}`}>
          Previous
        </Link>
      )}
      {(last === null || task < last) && (
        <Link class="button plain" to={`/jobs/${job}/tasks/${task + 1}`}>
          Next
        </Link>
      )}
    </nav>
  );
}

/** As one would type it in a shell. */
function quoted(argument: string): string {
  return /^[\w@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`;
}
