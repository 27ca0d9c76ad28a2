import { useState } from "preact/hooks";
import { get } from "../api/client";
import type { HistoryReport } from "../api/types";
import { never, useResource } from "../live/resource";
import { cpuTime, percent, plural } from "../text/human";
import { Button } from "../ui/Button";
import { Section } from "../ui/Section";
import { Empty, Shown } from "../ui/states";
import { energyWords, summed } from "./ledger";

const SPANS: [string, number][] = [
  ["1 h", 3600],
  ["24 h", 86400],
  ["7 d", 7 * 86400],
];
const READ_EVERY_MS = 60_000;
const MOST_USERS = 1000;

type Row = [name: string, meaning: string, seconds: number];

/** Cost and benefit of replicas: their CPU time, and how often they won. */
export function LedgerSection() {
  const [span, setSpan] = useState(SPANS[1]![1]);
  const ledger = useResource(
    `ledger/${span}`,
    (signal) => get<HistoryReport>("/history", { since: Date.now() / 1000 - span, limit: MOST_USERS }, signal),
    never,
    READ_EVERY_MS,
  );
  return (
    <Section
      title="CPU time by outcome"
      aside={
        <div class="buttons joined" role="group" aria-label="Length of time">
          {SPANS.map(([name, seconds]) => (
            <Button key={name} isPressed={span === seconds} onClick={() => setSpan(seconds)}>
              {name}
            </Button>
          ))}
        </div>
      }
    >
      <Shown of={ledger} what="attempts">
        {(report) =>
          report.lines.length ? <LedgerTable report={report} /> : <Empty>No attempt has ended in this time.</Empty>
        }
      </Shown>
    </Section>
  );
}

function LedgerTable({ report }: { report: HistoryReport }) {
  const sums = summed(report.lines);
  const energy = energyWords(report);
  const whole = sums.useful_cpu_s + sums.kept_cpu_s + sums.wasted_cpu_s + sums.lost_cpu_s;
  const rows: Row[] = [
    ["useful", "its result is the task’s", sums.useful_cpu_s],
    ...(sums.kept_cpu_s > 0 ? ([["kept", "a checkpoint has it: the task continued", sums.kept_cpu_s]] as Row[]) : []),
    ["superfluous", "another attempt was quicker", sums.wasted_cpu_s],
    ["lost", "it failed, its worker went away or gave it back, or its job was cancelled", sums.lost_cpu_s],
  ];
  return (
    <>
      <table class="ledger">
        <tbody>
          {rows.map(([name, meaning, seconds]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td class="right number">{cpuTime(seconds)}</td>
              <td class="right number">{percent(seconds, whole)}</td>
              <td>
                <svg
                  class={`strip ${name}`}
                  viewBox={`0 0 ${whole || 1} 1`}
                  preserveAspectRatio="none"
                  aria-hidden="true"
                >
                  <rect x="0" y="0" width={seconds} height="1" />
                </svg>
              </td>
              <td class="faint">{meaning}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="faint">
        {plural(sums.attempts, "attempt")} that ended in this time completed {plural(sums.tasks, "task")}. Replicas
        took {cpuTime(sums.replicated_cpu_s)} of the whole, {percent(sums.replicated_cpu_s, whole)}, whether they won
        or lost.
      </p>
      {energy && <p class="faint">{energy}</p>}
    </>
  );
}
