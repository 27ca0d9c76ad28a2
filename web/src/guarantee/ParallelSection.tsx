import { get } from "../api/client";
import type { ParallelReport } from "../api/types";
import { never, useResource } from "../live/resource";
import { count, duration, percent } from "../text/human";
import { Section } from "../ui/Section";

const SPAN_S = 7 * 86400;
const READ_EVERY_MS = 60_000;

/** Utilisation and waits of jobs on several nodes in the last week. Nothing is shown where none has started. */
export function ParallelSection() {
  const { data } = useResource(
    "parallel",
    (signal) => get<ParallelReport>("/history/parallel", { since: Date.now() / 1000 - SPAN_S }, signal),
    never,
    READ_EVERY_MS,
  );
  return data && data.jobs ? <Measures report={data} /> : null;
}

function Measures({ report }: { report: ParallelReport }) {
  const { offered_s, s_per_node } = report;
  return (
    <Section title="Jobs on several nodes, last 7 days">
      {offered_s > 0 && (
        <p>
          Of the slots that workers offered, {percent(report.used_s, offered_s)} were used,{" "}
          {percent(report.parallel_s, offered_s)} by jobs on several nodes.
        </p>
      )}
      {s_per_node !== null && (
        <p>
          Each node makes a job wait {duration(Math.abs(s_per_node))} {s_per_node < 0 ? "less" : "more"} (correlation{" "}
          {(report.correlation ?? 0).toFixed(2)}).
        </p>
      )}
      <div class="scroller">
        <table>
          <thead>
            <tr>
              <th scope="col">Nodes</th>
              <th scope="col">Jobs</th>
              <th scope="col">Mean wait</th>
              <th scope="col">Longest</th>
            </tr>
          </thead>
          <tbody>
            {report.waits.map((one) => (
              <tr key={one.nodes}>
                <td class="number">{one.nodes}</td>
                <td class="number">{count(one.jobs)}</td>
                <td class="number">{duration(one.mean_wait_s)}</td>
                <td class="number">{duration(one.longest_wait_s)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  );
}
