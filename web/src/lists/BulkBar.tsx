import { asProblem } from "../api/client";
import { plural } from "../text/human";
import { Button } from "../ui/Button";
import type { Picks } from "./picks";
import { say } from "../ui/toast";

export interface BulkAction<Row> {
  name: string;
  /** Past participle for the message: "paused". */
  done: string;
  fits: (row: Row) => boolean;
  /** `word`: the user's answer to `ask`. */
  run: (row: Row, word: string) => Promise<unknown>;
  /** Asks the user to confirm, once for all rows. */
  isMeant?: (rows: Row[]) => Promise<boolean>;
  /** Asks the user for a text, once for all rows; null: cancelled. */
  ask?: (rows: Row[]) => Promise<string | null>;
}

interface Props<Row, Key> {
  /** Rows that may be chosen. */
  rows: Row[];
  keyOf: (row: Row) => Key;
  picks: Picks<Key>;
  noun: string;
  actions: BulkAction<Row>[];
  onDone: () => void;
}

/** Buttons for all chosen rows; hidden while none is chosen. */
export function BulkBar<Row, Key>({ rows, keyOf, picks, noun, actions, onDone }: Props<Row, Key>) {
  const chosen = rows.filter((row) => picks.has(keyOf(row)));
  if (!chosen.length) return null;

  async function run(action: BulkAction<Row>): Promise<void> {
    const fitting = chosen.filter(action.fits);
    if (action.isMeant && !(await action.isMeant(fitting))) return;
    const word = action.ask ? await action.ask(fitting) : "";
    if (word === null) return;
    say(...outcome(await runEach(action, fitting, word), action, fitting.length, noun));
    picks.set([]);
    onDone();
  }

  return (
    <div class="bulk buttons" role="group" aria-label={`Chosen ${noun}s`}>
      <span>{plural(chosen.length, noun)} chosen</span>
      {actions
        .map((action) => [action, chosen.filter(action.fits).length] as const)
        .filter(([, count]) => count)
        .map(([action, count]) => (
          <Button key={action.name} kind={action.isMeant ? "danger" : "plain"} onClick={() => void run(action)}>
            {action.name} {count}
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
async function runEach<Row>(action: BulkAction<Row>, rows: Row[], word: string): Promise<string[]> {
  const failures: string[] = [];
  for (const row of rows) {
    try {
      await action.run(row, word);
    } catch (error) {
      failures.push(asProblem(error).message);
    }
  }
  return failures;
}

function outcome(failures: string[], action: { done: string }, count: number, noun: string): [string, boolean] {
  const done = `${plural(count - failures.length, noun)} ${action.done}`;
  return failures.length ? [`${done}; ${failures.length} not: ${failures[0]}`, true] : [`${done}.`, false];
}
