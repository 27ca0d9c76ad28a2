/** Actions on a job; empty unless the caller may steer it. */
import { post } from "../api/client";
import type { JobView } from "../api/types";
import { maySteer } from "../session/session";
import { plural } from "../text/human";
import { Button } from "../ui/Button";
import { confirmed } from "../ui/Confirm";
import { attempt, say } from "../ui/toast";
import { isOver } from "./jobs";

export type Verb = "cancel" | "pause" | "resume" | "retry";
export const DONE: Record<Verb, string> = {
  cancel: "cancelled",
  pause: "paused",
  resume: "resumed",
  retry: "queued again",
};

export function Steering({ job, onDone }: { job: JobView; onDone: () => void }) {
  if (!maySteer(job.user)) return null;

  async function steer(verb: Verb): Promise<void> {
    if (verb === "cancel" && !(await askToCancel(job))) return;
    const isDone = await attempt(() => post(`/jobs/${job.id}/${verb}`));
    if (isDone) say(`Job ${job.id} is ${DONE[verb]}.`);
    onDone();
  }

  return (
    <span class="buttons">
      {verbsOf(job).map((verb) => (
        <Button
          key={verb}
          kind={verb === "cancel" ? "danger" : "plain"}
          label={`${verb} job ${job.id}`}
          onClick={() => void steer(verb)}
        >
          {verb.charAt(0).toUpperCase() + verb.slice(1)}
        </Button>
      ))}
    </span>
  );
}

export function verbsOf(job: JobView): Verb[] {
  if (isOver(job)) return job.state === "succeeded" ? [] : ["retry"];
  return [job.paused ? "resume" : "pause", "cancel"];
}

function askToCancel(job: JobView): Promise<boolean> {
  const left = job.task_count - (job.tasks.succeeded ?? 0);
  const text = `${plural(left, "task")} will be dropped; running ones are killed. Existing results stay.`;
  return confirmed(`Cancel job ${job.id}${job.name ? `, ${job.name}` : ""}?`, text, "Cancel the job");
}
