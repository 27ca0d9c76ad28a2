import { asProblem } from "../api/client";
import { plural } from "../text/human";
import { Button } from "../ui/Button";
import type { Picks } from "./picks";
import { say } from "../ui/toast";

export interface Deed<Row> {
  name: string;
  /** What a row is afterwards: "paused". */
  done: string;
  fits: (row: Row) => boolean;
  /** `word`: what the user said to it. */
  run: (row: Row, word: string) => Promise<unknown>;
  /** Whether the user means it; asked once for all rows. */
  isMeant?: (rows: Row[]) => Promise<boolean>;
  /** What the user says to it, asked once for all rows; null: it is not meant. */
  ask?: (rows: Row[]) => Promise<string | null>;
}

interface Props<Row, Key> {
  /** Those that may be chosen. */
  rows: Row[];
  keyOf: (row: Row) => Key;
  picks: Picks<Key>;
  noun: string;
  deeds: Deed<Row>[];
  onDone: () => void;
}

/** What can be done with all chosen rows; nothing is shown while none is chosen. */
export function BulkBar<Row, Key>({ rows, keyOf, picks, noun, deeds, onDone }: Props<Row, Key>) {
  const chosen = rows.filter((row) => picks.has(keyOf(row)));
  if (!chosen.length) return null;

  async function run(deed: Deed<Row>): Promise<void> {
    const fitting = chosen.filter(deed.fits);
    if (deed.isMeant && !(await deed.isMeant(fitting))) return;
    const word = deed.ask ? await deed.ask(fitting) : "";
    if (word === null) return;
    say(...outcome(await runEach(deed, fitting, word), deed, fitting.length, noun));
    picks.set([]);
    onDone();
  }

  return (
    <div class="bulk buttons" role="group" aria-label={`Chosen ${noun}s`}>
      <span>{plural(chosen.length, noun)} chosen</span>
      {deeds
        .map((deed) => [deed, chosen.filter(deed.fits).length] as const)
        .filter(([, count]) => count)
        .map(([deed, count]) => (
          <Button key={deed.name} kind={deed.isMeant ? "danger" : "plain"} onClick={() => void run(deed)}>
            {deed.name} {count}
          </Button>
        ))}
      {chosen.length < rows.length && (
        <Button kind="quiet" onClick={() => picks.set(rows.map(keyOf))}>
          Choose all {rows.length} shown
        </Button>
      )}
      <Button kind="quiet" onClick={() => picks.set([])}>
        Choose none
      </Button>
    </div>
  );
}

/** One after the other: the master is asked no more at a time by many rows than by one. Returns why some failed. */
async function runEach<Row>(deed: Deed<Row>, rows: Row[], word: string): Promise<string[]> {
  const failures: string[] = [];
  for (const row of rows) {
    try {
      await deed.run(row, word);
    } catch (error) {
      failures.push(asProblem(error).message);
    }
  }
  return failures;
}

function outcome(failures: string[], deed: { done: string }, count: number, noun: string): [string, boolean] {
  const done = `${plural(count - failures.length, noun)} ${deed.done}`;
  return failures.length ? [`${done}; ${failures.length} not: ${failures[0]}`, true] : [`${done}.`, false];
}
