/** One stream of a task's output: numbered lines that can be searched and linked to. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { TaskDetail } from "../api/types";
import { setWords, useWord } from "../router";
import { amount, count, plural } from "../text/human";
import { Button } from "../ui/Button";
import { Empty, Loading, ProblemNote } from "../ui/states";
import { errorLine, found, type Line, numbered, placeOf, type Stream } from "./lines";
import { useLog, type Way } from "./logs";
import { isBinary } from "./terminal";

const NEAR_END_PX = 40;
/** Lines that are laid out together, once they come into view. */
const BLOCK = 200;

interface Props {
  path: string;
  stream: Stream;
  /** Of a gang: the member whose output it is. */
  rank: number | null;
  task: TaskDetail;
  isWrapped: boolean;
  /** Whether it opens at the line that says why the task failed. */
  isAtError: boolean;
}

export function LogPane({ path, stream, rank, task, isWrapped, isAtError }: Props) {
  const log = useLog(`${path}/${stream}`, rank, wayOf(task), endedAttempts(task));
  const [text] = useWord("find");
  const [place] = useWord("line");
  const lines = useMemo(() => numbered(log), [log.head, log.end, log.missingBytes]);
  const hits = useMemo(() => found(lines, text ?? ""), [lines, text]);
  const pre = useRef<HTMLPreElement>(null);
  const isFollowing = useRef(!isAtError);
  const named = placeOf(place);
  const chosen = named?.stream === stream ? named.number : null;

  useEffect(() => {
    const box = pre.current;
    if (box && task.state === "running" && isFollowing.current) box.scrollTop = box.scrollHeight;
  }, [lines]);

  const isThere = log.isRead && lines.head.length > 0;
  useEffect(() => {
    if (isThere && chosen !== null) bring(pre.current!, chosen, true);
    else if (isThere && isAtError) bring(pre.current!, errorLine(lines), false);
  }, [isThere, chosen, isWrapped]);

  function onScroll(): void {
    const box = pre.current!;
    isFollowing.current = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END_PX;
  }

  /** A number is a link of its own; a plain click marks the line without a jump. */
  function onClick(event: MouseEvent): void {
    const number = (event.target as HTMLElement).dataset.line;
    if (number === undefined || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    setWords({ line: Number(number) === chosen ? null : `${stream}-${number}` }, { replace: true });
  }

  if (log.problem) return <ProblemNote problem={log.problem} />;
  if (!log.isRead) return <Loading what="what it printed" />;
  if (!log.head) return <Empty>{emptyWord(task, stream)}</Empty>;
  if (isBinary(log.head)) return <Empty>This is binary output. Save it to look at it.</Empty>;
  const marks: Marks = { stream, chosen, hits: new Set(hits), isTall: !isWrapped };
  return (
    <>
      <PaneTools
        stream={stream}
        hits={text ? hits : null}
        isPart={log.missingBytes > 0}
        onHit={(number) => bring(pre.current!, number, true)}
        onEnd={() => toEnd(pre.current!)}
      />
      <pre
        class={isWrapped ? "code log wrapped" : "code log"}
        tabIndex={0}
        aria-label={stream}
        ref={pre}
        onScroll={onScroll}
        onClick={onClick}
      >
        <Blocks lines={lines.head} {...marks} />
        {log.missingBytes > 0 && (
          <p class="note gap">{amount(log.missingBytes)} are not shown here: save the output to read them.</p>
        )}
        <Blocks lines={lines.end} {...marks} />
      </pre>
    </>
  );
}

interface Marks {
  stream: Stream;
  chosen: number | null;
  hits: ReadonlySet<number>;
  /** Whether each line has the height of one. */
  isTall: boolean;
}

function Blocks({ lines, ...marks }: Marks & { lines: Line[] }) {
  const blocks = [];
  for (let start = 0; start < lines.length; start += BLOCK) blocks.push(lines.slice(start, start + BLOCK));
  return (
    <>
      {blocks.map((block) => (
        <div
          key={block[0]!.number}
          class={marks.isTall && lines.length > BLOCK ? "lines" : undefined}
          style={{ containIntrinsicBlockSize: `auto ${block.length * 1.45}em` }}
        >
          {block.map((line) => (
            <LineOf key={line.number} line={line} {...marks} />
          ))}
        </div>
      ))}
    </>
  );
}

function LineOf({ line, stream, chosen, hits }: Marks & { line: Line }) {
  const { number } = line;
  const marks = [number === chosen && "chosen", hits.has(number) && "hit"].filter(Boolean).join(" ");
  return (
    <span class={`line ${marks}`} id={`${stream}-${number}`}>
      <a
        href={`?line=${stream}-${number}`}
        tabIndex={-1}
        data-line={number}
        aria-label={`Link to line ${number} of ${stream}`}
      />
      {line.runs.map((run, at) =>
        run.style ? (
          <span key={at} class={run.style}>
            {run.text}
          </span>
        ) : (
          run.text
        ),
      )}
      {"\n"}
    </span>
  );
}

interface ToolsProps {
  stream: Stream;
  /** Null: nothing is searched for. */
  hits: number[] | null;
  isPart: boolean;
  onHit: (number: number) => void;
  onEnd: () => void;
}

function PaneTools({ stream, hits, isPart, onHit, onEnd }: ToolsProps) {
  const [at, setAt] = useState(-1);
  useEffect(() => setAt(-1), [hits?.length]);

  function step(by: number): void {
    const next = (at + by + hits!.length) % hits!.length;
    setAt(next);
    onHit(hits![next]!);
  }

  return (
    <p class="pane-tools">
      <span class="faint">{stream}</span>
      {hits !== null && (
        <span role="status">
          {at < 0 ? plural(hits.length, "line") : `${count(at + 1)} of ${plural(hits.length, "line")}`}
          {isPart && " in what is shown"}
        </span>
      )}
      {hits !== null && hits.length > 0 && (
        <>
          <Button kind="quiet" onClick={() => step(at < 0 ? 0 : -1)}>
            Previous
          </Button>
          <Button kind="quiet" onClick={() => step(1)}>
            Next
          </Button>
        </>
      )}
      <span class="end">
        <Button kind="quiet" onClick={onEnd}>
          to the end
        </Button>
      </span>
    </p>
  );
}

/** Brings a line into the middle of its box; `isAsked`: the page is scrolled to it as well, where it has to be. */
function bring(pre: HTMLElement, number: number | null, isAsked: boolean): void {
  const line = pre.querySelector<HTMLElement>(`[data-line="${number}"]`);
  if (!line) return;
  const box = pre.getBoundingClientRect();
  pre.scrollTop += line.getBoundingClientRect().top - box.top - box.height / 2;
  if (isAsked) line.scrollIntoView({ block: "nearest" });
}

function toEnd(pre: HTMLElement): void {
  pre.scrollTop = pre.scrollHeight;
  pre.scrollIntoView({ block: "nearest" });
}

function emptyWord(task: TaskDetail, stream: Stream): string {
  return task.finished_at === null ? `No output on ${stream} yet.` : `No output on ${stream}.`;
}

export function wayOf(task: TaskDetail): Way {
  if (task.state === "running") return "follow";
  return endedAttempts(task) > 0 ? "once" : null;
}

const endedAttempts = (task: TaskDetail): number =>
  task.attempts.filter((attempt) => attempt.exit_code !== null).length;
