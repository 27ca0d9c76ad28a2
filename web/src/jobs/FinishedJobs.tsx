/** Jobs that are over, the newest first, a page at a time. */
import { get } from "../api/client";
import type { JobView, Page } from "../api/types";
import { anyJob, useResource } from "../live/resource";
import { now } from "../live/clock";
import { useWord } from "../router";
import { maySubmit } from "../session/session";
import { between, shortMoment } from "../text/human";
import { Cards, type Column } from "../ui/Cards";
import { Chip } from "../ui/Chip";
import { choose, Pager, usePages } from "../ui/Pager";
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
  const [word] = useWord("over");
  const state = STATES.find((one) => one === word) ?? "succeeded";
  const pages = usePages("page");
  const query = { state, cursor: pages.cursor, limit: PAGE };
  const finished = useResource(
    `jobs/${state}/${pages.cursor}`,
    (signal) => get<Page<JobView>>("/jobs", query, signal),
    anyJob,
  );
  return (
    <Section title="Over" aside={<StateChoice chosen={state} onChoose={(one) => choose("over", one, "page")} />}>
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
  const actions = maySubmit.value ? (job: JobView) => <Steering job={job} onDone={onDone} /> : undefined;
  return <Cards rows={jobs} keyOf={({ id }) => id} columns={COLUMNS} actions={actions} />;
}

const COLUMNS: Column<JobView>[] = [
  { name: "Job", show: (job) => <JobName job={job} /> },
  {
    name: "State",
    show: (job) => (
      <span class="state-cell">
        <Chip state={job.state} />
        <Differing job={job} />
      </span>
    ),
  },
  { name: "Tasks", show: (job) => <Progress tasks={job.tasks} total={job.task_count} /> },
  { name: "Size", class: "right number", show: sizeOf },
  { name: "User", show: (job) => job.owner },
  { name: "Ended", class: "number", show: (job) => shortMoment(job.finished_at, now.value) },
  { name: "Took", class: "right number", show: (job) => between(job.submitted_at, job.finished_at, now.value) },
];
