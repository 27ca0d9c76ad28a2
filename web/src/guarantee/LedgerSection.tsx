import { useState } from "preact/hooks";
import { get } from "../api/client";
import type { AttemptView, Page } from "../api/types";
import { never, useResource } from "../live/resource";
import { count, cpuTime, percent } from "../text/human";
import { Button } from "../ui/Button";
import { Section } from "../ui/Section";
import { Empty, Shown } from "../ui/states";
import { type LedgerSums, ledgerOf } from "./ledger";

const SPANS: [string, number][] = [
  ["1 h", 3600],
  ["24 h", 86400],
  ["7 d", 7 * 86400],
];
const PAGE = 1000;
const MOST_PAGES = 20;
const READ_EVERY_MS = 60_000;

/** Whether replicas are worth it: what they cost, and how often they won. */
export function LedgerSection() {
  const [span, setSpan] = useState(SPANS[1]![1]);
  const ledger = useResource(
    `ledger/${span}`,
    (signal) => readLedger(Date.now() / 1000 - span, signal),
    never,
    READ_EVERY_MS,
  );
  return (
    <Section
      title="What computation was good for"
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
        {({ sums, isWhole }) =>
          sums.attempts ? (
            <LedgerTable sums={sums} isWhole={isWhole} />
          ) : (
            <Empty>No attempt has ended in this time.</Empty>
          )
        }
      </Shown>
    </Section>
  );
}

function LedgerTable({ sums, isWhole }: { sums: LedgerSums; isWhole: boolean }) {
  const whole = sums.useful_s + sums.replicated_s + sums.failed_s + sums.lost_s;
  const rows: [string, string, number][] = [
    ["useful", "its result is the task’s", sums.useful_s],
    ["replicated", "another attempt was quicker, or its job was cancelled", sums.replicated_s],
    ["failed", "the task itself failed", sums.failed_s],
    ["lost", "the worker went away, or gave it back", sums.lost_s],
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
        {count(sums.replicas)} of {count(sums.attempts)} attempts were replicas; {count(sums.replicasThatWon)} of them
        brought the result{!isWhole && `; counted are the first ${count(MOST_PAGES * PAGE)} attempts of that time`}.
      </p>
    </>
  );
}

async function readLedger(since: number, signal: AbortSignal): Promise<{ sums: LedgerSums; isWhole: boolean }> {
  const attempts: AttemptView[] = [];
  let cursor: string | null = null;
  for (let page = 0; page < MOST_PAGES; page++) {
    const answer: Page<AttemptView> = await get<Page<AttemptView>>(
      "/attempts",
      { since, cursor, limit: PAGE },
      signal,
    );
    attempts.push(...answer.items);
    cursor = answer.next;
    if (cursor === null) break;
  }
  return { sums: ledgerOf(attempts), isWhole: cursor === null };
}
