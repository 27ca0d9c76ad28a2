/** The tasks that the form means, as it is filled in; and what the master says to them, where it can. */
import { useEffect, useState } from "preact/hooks";
import { post } from "../api/client";
import type { Preview } from "../api/types";
import { count, duration, plural, size } from "../text/human";
import { Empty } from "../ui/states";
import type { Meant } from "./draft";
import { taskAt, taskCount, unknownNames } from "./sweep";
import { lineOf } from "./words";

const SHOWN = 20;
const SETTLE_MS = 500;

interface Props {
  meant: Meant;
  mayAsk: boolean;
}

export function PreviewPane({ meant, mayAsk }: Props) {
  const asked = useMastersPreview(meant, mayAsk);
  if (!meant.command.length) return <Empty>The tasks stand here once there is a command.</Empty>;
  const total = taskCount(meant.parameters);
  const unknown = unknownNames(meant.command, meant.parameters);
  return (
    <div class="preview" aria-live="polite">
      <p>
        <strong class="number">{count(total)}</strong> {total === 1 ? "task" : "tasks"}
        {meant.spec.size && <span class="faint">, {duration(meant.spec.size / total)} of computation each</span>}
        {!meant.spec.size && (
          <span class="faint">
            ,{" "}
            {asked?.size
              ? `about ${size(asked.size)} in all, from earlier jobs`
              : "of unknown size: it counts as larger than any other"}
          </span>
        )}
      </p>
      {asked?.expected && (
        <p>
          Expected to take {duration(asked.expected.p50_s)}, in nine of ten forecasts at most{" "}
          {duration(asked.expected.p90_s)}.
        </p>
      )}
      {unknown.length > 0 && (
        <p class="note bad">
          No parameter is called {unknown.map((name) => `{${name}}`).join(", ")}: it stays as it is.
        </p>
      )}
      {asked?.warnings.map((warning) => (
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

/** What only the master knows: which size it predicts, how long it takes, whether a worker can run it. */
function useMastersPreview(meant: Meant, mayAsk: boolean): Preview | null {
  const [preview, setPreview] = useState<Preview | null>(null);
  const isComplete = meant.command.length > 0 && Object.keys(meant.mistakes).length === 0;
  const body = mayAsk && isComplete ? JSON.stringify(meant.spec) : null;
  useEffect(() => {
    setPreview(null);
    if (!body) return;
    let isOver = false;
    const timer = setTimeout(() => {
      post<Preview>("/jobs/preview", JSON.parse(body))
        .then((answer) => isOver || setPreview(answer))
        .catch(() => undefined); // submitting will say what is wrong
    }, SETTLE_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [body]);
  return preview;
}
