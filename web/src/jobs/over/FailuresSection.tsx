/** Failed tasks of the latest jobs, by reason: one bug, or one bad PC, is one line, whatever jobs it hit. */
import { get } from "../../api/client";
import type { FailureKind, FailureReport } from "../../api/types";
import { Cards, type Column } from "../../lists/Cards";
import { sorted } from "../../lists/sorted";
import { useSorting } from "../../lists/sorting";
import { never, useResource } from "../../live/resource";
import { Link } from "../../router";
import { count, plural } from "../../text/human";
import { Section } from "../../ui/Section";
import { Shown } from "../../ui/states";
import { JobLinks } from "../Hold";
import { useJobFilter } from "../JobFinder";

/** Reading them costs much more than a list of jobs, so it is not done at each change. */
const EVERY_MS = 20_000;

/** Nothing is shown where nothing has failed. */
export function FailuresSection() {
  const { user } = useJobFilter();
  const sorting = useSorting("failed");
  const report = useResource(
    `failures/${user ?? ""}`,
    (signal) => get<FailureReport>("/failures", { user }, signal),
    never,
    EVERY_MS,
  );
  if (report.data && !report.data.kinds.length) return null;
  return (
    <Section title="Failures" aside={report.data && <span class="faint">{extentOf(report.data)}</span>}>
      <Shown of={report} what="failures">
        {({ kinds }) => (
          <Cards rows={sorted(kinds, COLUMNS, sorting)} keyOf={keyOf} columns={COLUMNS} sorting={sorting} />
        )}
      </Shown>
    </Section>
  );
}

const keyOf = ({ exit_code, example }: FailureKind): string => `${exit_code} ${example}`;

const extentOf = ({ job_count, truncated }: FailureReport): string =>
  truncated ? `of the latest ${count(job_count)} jobs with failed tasks` : `of ${plural(job_count, "job")}`;

const COLUMNS: Column<FailureKind>[] = [
  {
    name: "Reason",
    class: "reason",
    order: ({ reason }) => reason,
    show: ({ reason }) => reason || "no reason given",
  },
  {
    name: "Exit",
    class: "right number",
    order: ({ exit_code }) => exit_code,
    show: ({ exit_code }) => exit_code ?? "–",
  },
  { name: "Failed tasks", class: "right number", order: ({ tasks }) => tasks, show: ({ tasks }) => count(tasks) },
  { name: "Jobs", order: ({ jobs }) => jobs.length, show: ({ jobs }) => <JobLinks jobs={jobs} /> },
  { name: "Example", class: "number", show: ({ example }) => <Example of={example} /> },
];

function Example({ of }: { of: string }) {
  const [job, task] = of.split(".");
  return <Link to={`/jobs/${job}/tasks/${task}`}>{of}</Link>;
}
