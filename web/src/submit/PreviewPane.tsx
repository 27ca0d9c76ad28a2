/** Preview of the form's tasks, and the master's answer. */
import { useEffect, useState } from "preact/hooks";
import { asProblem, post, type Problem } from "../api/client";
import type { JobSpec, Preview } from "../api/types";
import { count, duration, plural } from "../text/human";
import { Empty, ProblemNote } from "../ui/states";
import type { Meant } from "./draft";
import { taskAt, taskCount, unknownNames } from "./sweep";
import { lineOf, shellWord } from "./words";

const SHOWN = 20;
const SETTLE_MS = 500;

interface Props {
  meant: Meant;
}

export function PreviewPane({ meant }: Props) {
  const { preview: asked, problem } = useMastersPreview(meant);
  if (!meant.command.length) return <Empty>The tasks appear here once there is a command.</Empty>;
  const total = taskCount(meant.parameters);
  const ofShell = shellWord(meant.command);
  const unknown = unknownNames(meant.command, meant.parameters);
  return (
    <div class="preview" aria-live="polite">
      <p>
        <strong class="number">{count(total)}</strong> {total === 1 ? "task" : "tasks"}
        <span class="faint">, {sizeWords(meant.spec.size, total)}</span>
      </p>
      {asked && <ExpectedTime preview={asked} />}
      {unknown.length > 0 && (
        <p class="note bad">
          No parameter has the name {unknown.map((name) => `{${name}}`).join(", ")}: left unchanged.
        </p>
      )}
      {ofShell && (
        <p class="note bad">
          No shell reads this line: the program gets <code>{ofShell}</code> as it stands. For a line of a shell:{" "}
          <code>sh -c '…'</code>, the whole line in quotes.
        </p>
      )}
      {problem && <ProblemNote problem={problem} />}
      {asked?.warnings?.map((warning) => (
        <p key={warning} class="note bad">
          {warning}
        </p>
      ))}
      <ol class="tasks-preview">
        {Array.from({ length: Math.min(SHOWN, total) }, (_, place) => {
          const task = taskAt(meant.command, meant.parameters, place + 1);
          return (
            <li key={place} value={task.number}>
              <code>{lineOf(task.command)}</code>
            </li>
          );
        })}
      </ol>
      {total > SHOWN && (
        <p class="faint">
          and {plural(total - SHOWN, "more task")}; the last:{" "}
          <code>{lineOf(taskAt(meant.command, meant.parameters, total).command)}</code>
        </p>
      )}
    </div>
  );
}

function sizeWords(given: JobSpec["size"], total: number): string {
  if (typeof given === "number") return `${duration(given / total)} of computation each`;
  const none = "no size: later jobs may finish first";
  return given === "unknown" ? none : `sized by earlier runs of the program; if there are none, ${none}`;
}

function ExpectedTime({ preview }: { preview: Preview }) {
  const { expected } = preview;
  if (!expected) return <p class="faint">No estimate yet: too little is known about such jobs.</p>;
  return (
    <p>
      If submitted now: 50 % likely to end within {duration(expected.p50_s)}, 90 % likely within{" "}
      {duration(expected.p90_s)}.
    </p>
  );
}

interface Asked {
  preview: Preview | null;
  problem: Problem | null;
}

const NOT_ASKED: Asked = { preview: null, problem: null };

/** The master's preview: predicted size, expected duration, and warnings. */
function useMastersPreview(meant: Meant): Asked {
  const [asked, setAsked] = useState(NOT_ASKED);
  const isComplete = meant.command.length > 0 && Object.keys(meant.mistakes).length === 0;
  const body = isComplete ? JSON.stringify(meant.spec) : null;
  useEffect(() => {
    setAsked(NOT_ASKED);
    if (!body) return;
    let isOver = false;
    const timer = setTimeout(() => {
      post<Preview>("/jobs/preview", JSON.parse(body))
        .then((preview) => isOver || setAsked({ preview, problem: null }))
        .catch((error: unknown) => isOver || setAsked({ preview: null, problem: asProblem(error) }));
    }, SETTLE_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [body]);
  return asked;
}
