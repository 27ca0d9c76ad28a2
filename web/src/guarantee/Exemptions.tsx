import type { Passing, PassingReport } from "../api/types";
import { Link } from "../router";
import { count } from "../text/human";
import { Section } from "../ui/Section";
import { Empty } from "../ui/states";

const REASONS: Record<string, string> = {
  paused: "the earlier job was paused by its user",
  stalled: "no connected worker could run the earlier job",
  overdrawn: "the earlier job has used many times its size",
  "other-user": "the order held only among the jobs of each user",
};

/** Where a job was allowed to complete first, and why. */
export function Exemptions({ report }: { report: PassingReport }) {
  const counted = Object.entries(report.excused);
  return (
    <Section title="Exemptions">
      {counted.length > 0 && (
        <ul class="inline">
          {counted.map(([reason, pairs]) => (
            <li key={reason}>
              <span class="number">{count(pairs)}</span> {reason} <span class="faint">{REASONS[reason]}</span>
            </li>
          ))}
        </ul>
      )}
      {report.unfounded.map(({ job, reason, flaw }) => (
        <p class="bad" key={`${job} ${flaw}`}>
          <Link to={`/jobs/${job}`}>Job {job}</Link> held no other job ({reason}), without evidence: {flaw}
        </p>
      ))}
      {report.latest.length ? (
        <Latest passings={report.latest} />
      ) : (
        <Empty>No job has ever completed before a job that it must not pass.</Empty>
      )}
    </Section>
  );
}

function Latest({ passings }: { passings: Passing[] }) {
  return (
    <div class="scroller">
      <table>
        <thead>
          <tr>
            <th scope="col">Completed first</th>
            <th scope="col">Before</th>
            <th scope="col">Because</th>
          </tr>
        </thead>
        <tbody>
          {passings.map(({ job, passed, reason }) => (
            <tr key={`${job} ${passed}`}>
              <td>
                <Link to={`/jobs/${job}`}>job {job}</Link>
              </td>
              <td>
                <Link to={`/jobs/${passed}`}>job {passed}</Link>
              </td>
              <td class={reason ? "" : "bad"}>
                {reason ? (REASONS[reason] ?? reason) : "no reason: this must never happen"}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
