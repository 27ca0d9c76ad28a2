import type { HTMLAttributes } from "preact";
import { post } from "../api/client";
import type { JobView } from "../api/types";
import { maySteer, maySubmit } from "../session/session";
import { plural } from "../text/human";
import { BulkBar, type BulkAction } from "../lists/BulkBar";
import { Cards, type Column } from "../lists/Cards";
import { confirmed } from "../ui/Confirm";
import type { Sorting } from "../lists/sorting";
import { usePicks } from "../lists/picks";
import { DONE, Steering, type Verb, verbsOf } from "./Steering";

interface Props<Job extends JobView> {
  jobs: Job[];
  columns: Column<Job>[];
  body?: HTMLAttributes<HTMLTableSectionElement>;
  sorting?: Sorting;
  onDone: () => void;
}

/** A table of jobs, each of which, and several at once, may be paused, cancelled or retried. */
export function SteeredJobs<Job extends JobView>({ jobs, columns, body, sorting, onDone }: Props<Job>) {
  const picks = usePicks<number>();
  const mine = jobs.filter(isPickable);
  const steering = maySubmit.value
    ? { picks, isPickable, actions: (job: Job) => <Steering job={job} onDone={onDone} /> }
    : {};
  return (
    <>
      <BulkBar rows={mine} keyOf={numberOf} picks={picks} noun="job" actions={BULK_ACTIONS} onDone={onDone} />
      <Cards rows={jobs} keyOf={numberOf} columns={columns} sorting={sorting} {...(body && { body })} {...steering} />
    </>
  );
}

const numberOf = ({ id }: JobView): number => id;
const isPickable = (job: JobView): boolean => maySteer(job.user) && verbsOf(job).length > 0;

const action = (verb: Verb, name: string): BulkAction<JobView> => ({
  name,
  done: DONE[verb],
  fits: (job) => verbsOf(job).includes(verb),
  run: (job) => post(`/jobs/${job.id}/${verb}`),
});

const BULK_ACTIONS: BulkAction<JobView>[] = [
  action("pause", "Pause"),
  action("resume", "Resume"),
  action("retry", "Retry"),
  {
    ...action("cancel", "Cancel"),
    isMeant: (jobs) =>
      confirmed(
        `Cancel ${plural(jobs.length, "job")}?`,
        "Their tasks that are not done will be dropped; running ones are killed. Existing results stay.",
        "Cancel them",
      ),
  },
];
