/** Jobs that are over, the newest first, a page at a time. */
import { useState } from "preact/hooks";
import { get } from "../api/client";
import type { JobView, Page } from "../api/types";
import { anyJob, useResource } from "../live/resource";
import { now } from "../live/clock";
import { maySubmit } from "../session/session";
import { between, shortMoment } from "../text/human";
import { Chip } from "../ui/Chip";
import { Pager, usePages } from "../ui/Pager";
import { Progress } from "../ui/Progress";
import { Section } from "../ui/Section";
import { Empty, Shown } from "../ui/states";
import { Differing } from "./Hold";
import { sizeOf } from "./jobs";
import { JobName } from "./LiveJobsTable";
import { Steering } from "./Steering";

const STATES = ["succeeded", "failed", "cancelled"] as const;
const PAGE = 25;

export function FinishedJobs() {
  const [state, setState] = useState<(typeof STATES)[number]>("succeeded");
  const pages = usePages(state);
  const query = { state, cursor: pages.cursor, limit: PAGE };
  const finished = useResource(
    `jobs/${state}/${pages.cursor}`,
    (signal) => get<Page<JobView>>("/jobs", query, signal),
    anyJob,
  );
  return (
    <Section title="Over" aside={<StateChoice chosen={state} onChoose={setState} />}>
      <Shown of={finished} what="jobs">
        {({ items, next }) =>
          items.length ? (
            <>
              <FinishedTable jobs={items} onDone={finished.reload} />
              <Pager pages={pages} next={next} />
            </>
          ) : (
            <Empty>No job has {state === "cancelled" ? "been cancelled" : state} yet.</Empty>
          )
        }
      </Shown>
    </Section>
  );
}

interface ChoiceProps {
  chosen: string;
  onChoose: (state: (typeof STATES)[number]) => void;
}

function StateChoice({ chosen, onChoose }: ChoiceProps) {
  return (
    <div class="buttons joined" role="group" aria-label="State">
      {STATES.map((state) => (
        <button
          key={state}
          type="button"
          class="button plain"
          aria-pressed={chosen === state}
          onClick={() => onChoose(state)}
        >
          {state}
        </button>
      ))}
    </div>
  );
}

function FinishedTable({ jobs, onDone }: { jobs: JobView[]; onDone: () => void }) {
  return (
    <div class="scroller">
      <table class="cards">
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            <th scope="col">Tasks</th>
            <th scope="col" class="right">
              Size
            </th>
            <th scope="col">User</th>
            <th scope="col">Ended</th>
            <th scope="col" class="right">
              Took
            </th>
            {maySubmit.value && (
              <th scope="col">
                <span class="unseen">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={job.id}>
              <th scope="row">
                <JobName job={job} />
              </th>
              <td data-name="State">
                <span class="state-cell">
                  <Chip state={job.state} />
                  <Differing job={job} />
                </span>
              </td>
              <td data-name="Tasks">
                <Progress tasks={job.tasks} total={job.task_count} />
              </td>
              <td data-name="Size" class="right number">
                {sizeOf(job)}
              </td>
              <td data-name="User">{job.owner}</td>
              <td data-name="Ended" class="number">
                {shortMoment(job.finished_at, now.value)}
              </td>
              <td data-name="Took" class="right number">
                {between(job.submitted_at, job.finished_at, now.value)}
              </td>
              {maySubmit.value && (
                <td class="actions">
                  <Steering job={job} onDone={onDone} />
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
