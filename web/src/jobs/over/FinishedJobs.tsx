/** Jobs that are over, the newest first, a page at a time. */
import { get } from "../../api/client";
import type { JobView, Page } from "../../api/types";
import { anyJob, useResource } from "../../live/resource";
import { now } from "../../live/clock";
import { useWord } from "../../router";
import { period, shortMoment } from "../../text/human";
import type { Column } from "../../lists/Cards";
import { Chip } from "../../ui/Chip";
import { useSorting } from "../../lists/sorting";
import { choose, Pager, usePages } from "../../lists/Pager";
import { Progress } from "../../ui/Progress";
import { Section } from "../../ui/Section";
import { Empty, Shown } from "../../ui/states";
import { Differing } from "../Hold";
import { useJobFilter } from "../JobFinder";
import { isSearch, sizeOf } from "../jobs";
import { DayField, useDays } from "./Days";
import { JobName } from "../LiveJobsTable";
import { SteeredJobs } from "../SteeredJobs";

const STATES = ["succeeded", "failed", "cancelled"] as const;
const PAGE = 25;

export function FinishedJobs() {
  const [word] = useWord("over");
  const state = STATES.find((one) => one === word) ?? "succeeded";
  const pages = usePages("page");
  const filter = useJobFilter();
  const sorting = useSorting("order");
  const { query: ended, isAny } = useDays();
  const query = { ...filter, ...ended, state, sort: sorting.word, cursor: pages.cursor, limit: PAGE };
  const finished = useResource(
    `jobs/${JSON.stringify(query)}`,
    (signal) => get<Page<JobView>>("/jobs", query, signal),
    anyJob,
  );
  return (
    <Section
      title="Over"
      aside={
        <>
          <DayField name="from" label="Ended from" />
          <DayField name="to" label="to" />
          <StateChoice chosen={state} onChoose={(one) => choose("over", one, "page")} />
        </>
      }
    >
      <Shown of={finished} what="jobs">
        {({ items, next }) =>
          items.length ? (
            <>
              <SteeredJobs jobs={items} columns={COLUMNS} sorting={sorting} onDone={finished.reload} />
              <Pager pages={pages} next={next} />
            </>
          ) : (
            <Empty>
              No {isSearch(filter) || isAny ? "such job" : "job"} has{" "}
              {state === "cancelled" ? "been cancelled" : state} yet.
            </Empty>
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

/** Their ids are what the master sorts by. */
const COLUMNS: Column<JobView>[] = [
  { name: "Job", id: "id", order: ({ id }) => id, show: (job) => <JobName job={job} /> },
  {
    name: "State",
    show: (job) => (
      <span class="state-cell">
        <Chip state={job.state} />
        <Differing job={job} />
      </span>
    ),
  },
  {
    name: "Tasks",
    id: "tasks",
    order: (job) => job.task_count,
    show: (job) => <Progress tasks={job.tasks} total={job.task_count} />,
  },
  { name: "Size", id: "size", order: (job) => job.size, class: "right number", show: sizeOf },
  { name: "User", id: "user", order: (job) => job.user, show: (job) => job.user },
  {
    name: "Ended",
    id: "ended",
    order: (job) => job.finished_at,
    class: "number",
    show: (job) => shortMoment(job.finished_at, now.value),
  },
  {
    name: "Took",
    id: "took",
    about: "from the start of its first task to its end",
    order: (job) => job.finished_at,
    class: "right number",
    show: (job) => period(job.took, now.value),
  },
];
