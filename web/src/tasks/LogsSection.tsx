import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { API } from "../api/client";
import type { TaskDetail } from "../api/types";
import { amount } from "../text/human";
import { Button } from "../ui/Button";
import { Section } from "../ui/Section";
import { Empty, Loading, ProblemNote } from "../ui/states";
import { useLog, type Way } from "./logs";
import { isBinary, runsOf } from "./terminal";

const STREAMS = ["stdout", "stderr"] as const;
const NEAR_END_PX = 40;

/** Output of the task; while it runs the end stays in view, unless the user has scrolled away. */
export function LogsSection({ path, task }: { path: string; task: TaskDetail }) {
  const [chosen, setStream] = useState<(typeof STREAMS)[number] | null>(null);
  const [isWrapped, setWrapped] = useState(false);
  const stream = chosen ?? (hasFailedLoudly(task) ? "stderr" : "stdout");
  return (
    <Section
      title="Output"
      aside={
        <>
          {wayOf(task) === "follow" && <span class="faint">as it is written</span>}
          <a class="faint" href={`${API}${path}/${stream}`} download={`${task.id}.${stream}.txt`}>
            save
          </a>
          <Button isPressed={isWrapped} onClick={() => setWrapped(!isWrapped)}>
            wrap
          </Button>
          <div class="buttons joined" role="group" aria-label="Stream">
            {STREAMS.map((one) => (
              <Button key={one} isPressed={stream === one} onClick={() => setStream(one)}>
                {one}
              </Button>
            ))}
          </div>
        </>
      }
    >
      <LogText path={`${path}/${stream}`} task={task} isWrapped={isWrapped} />
    </Section>
  );
}

interface LogProps {
  path: string;
  task: TaskDetail;
  isWrapped: boolean;
}

function LogText({ path, task, isWrapped }: LogProps) {
  const log = useLog(path, wayOf(task), endedAttempts(task));
  const isRunning = task.state === "running";
  const place = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);

  useEffect(() => {
    const pre = place.current;
    if (pre && isRunning && isAtEnd.current) pre.scrollTop = pre.scrollHeight;
  }, [log.head, log.end]);

  function onScroll(): void {
    const pre = place.current!;
    isAtEnd.current = pre.scrollHeight - pre.scrollTop - pre.clientHeight < NEAR_END_PX;
  }

  if (log.problem) return <ProblemNote problem={log.problem} />;
  if (!log.isRead) return <Loading what="what it printed" />;
  if (!log.head) return <Empty>{task.finished_at === null ? "No output yet." : "No output."}</Empty>;
  if (isBinary(log.head)) return <Empty>This is binary output. Save it to look at it.</Empty>;
  return (
    <>
      <pre class={isWrapped ? "code log wrapped" : "code log"} tabIndex={0} ref={place} onScroll={onScroll}>
        <Ink text={log.head} />
        {log.missingBytes > 0 && (
          <p class="note gap">{amount(log.missingBytes)} are not shown here: save the output to read them.</p>
        )}
        <Ink text={log.end} />
      </pre>
    </>
  );
}

/** Text in the colours that it asks for. */
function Ink({ text }: { text: string }) {
  const runs = useMemo(() => runsOf(text), [text]);
  return (
    <>
      {runs.map((run, index) =>
        run.style ? (
          <span key={index} class={run.style}>
            {run.text}
          </span>
        ) : (
          run.text
        ),
      )}
    </>
  );
}

/** It failed, and what it printed on stderr will say why. */
const hasFailedLoudly = (task: TaskDetail): boolean =>
  task.state === "failed" && task.attempts.some((attempt) => attempt.stderr_bytes);

function wayOf(task: TaskDetail): Way {
  if (task.state === "running") return "follow";
  return endedAttempts(task) > 0 ? "once" : null;
}

const endedAttempts = (task: TaskDetail): number =>
  task.attempts.filter((attempt) => attempt.exit_code !== null).length;
