import { API } from "../api/client";
import type { TaskDetail } from "../api/types";
import { SearchField } from "../lists/SearchField";
import { setWords, useWord } from "../router";
import { Button } from "../ui/Button";
import { Section } from "../ui/Section";
import { LogPane, wayOf } from "./LogPane";
import { placeOf, type Stream } from "./lines";
import { ranksOf, workerOf } from "./runs";

const STREAMS: Stream[] = ["stdout", "stderr"];
type View = Stream | "both";

/**
 * Output of the task; while it runs the end stays in view, unless the user has scrolled away. What is looked at stands
 * in the address (the stream, the line, the text that is searched for), without steps of its own for Back. A failed
 * task opens where its error is.
 */
export function LogsSection({ path, task }: { path: string; task: TaskDetail }) {
  const [word] = useWord("output");
  const [line] = useWord("line");
  const [wrap] = useWord("wrap");
  const [rankWord] = useWord("rank");
  const ranks = ranksOf(task.attempts);
  const rank = ranks.find((one) => String(one) === rankWord) ?? ranks[0] ?? null;
  const look = (words: Record<string, string | null>): void => setWords(words, { replace: true });
  const view = ([...STREAMS, "both"] as View[]).find((one) => one === word) ?? placeOf(line)?.stream ?? firstOf(task);
  const streams = view === "both" ? STREAMS : [view];
  const nameOf = (stream: Stream): string => `${task.id}${rank === null ? "" : `.rank-${rank}`}.${stream}.txt`;
  return (
    <Section
      title="Output"
      aside={
        <>
          {wayOf(task) === "follow" && <span class="faint">as it is written</span>}
          <SearchField name="find" label="Find in the output" placeholder="Find" />
          {streams.map((stream) => (
            <a class="faint" key={stream} href={`${API}${path}/${stream}${ofRank(rank)}`} download={nameOf(stream)}>
              save{view === "both" && ` ${stream}`}
            </a>
          ))}
          {rank !== null && (
            <label>
              rank{" "}
              <select value={rank} onChange={(event) => look({ rank: event.currentTarget.value, line: null })}>
                {ranks.map((one) => (
                  <option key={one} value={one}>
                    {one} on {workerOf(task, one)}
                  </option>
                ))}
              </select>
            </label>
          )}
          <Button isPressed={wrap !== null} onClick={() => look({ wrap: wrap === null ? "1" : null })}>
            wrap
          </Button>
          <div class="buttons joined" role="group" aria-label="Stream">
            {([...STREAMS, "both"] as View[]).map((one) => (
              <Button
                key={one}
                isPressed={view === one}
                onClick={() => look({ output: one, ...(one === "both" ? {} : { line: null }) })}
              >
                {one}
              </Button>
            ))}
          </div>
        </>
      }
    >
      {streams.map((stream) => (
        <LogPane
          key={`${stream} ${rank}`}
          path={path}
          rank={rank}
          stream={stream}
          task={task}
          isWrapped={wrap !== null}
          isAtError={task.state === "failed" && stream === firstOf(task)}
        />
      ))}
    </Section>
  );
}

const ofRank = (rank: number | null): string => (rank === null ? "" : `?rank=${rank}`);

/** What is opened: of a failed task stderr, where it printed something that will say why. */
const firstOf = (task: TaskDetail): Stream =>
  task.state === "failed" && task.attempts.some((attempt) => attempt.stderr_bytes) ? "stderr" : "stdout";
