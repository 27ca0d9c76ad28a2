/** Lines of all tasks of a job that contain a text. */
import { useEffect, useState } from "preact/hooks";
import { asProblem, get, type Problem } from "../api/client";
import type { FoundLine, Page } from "../api/types";
import { SearchField } from "../lists/SearchField";
import { Link, useWord } from "../router";
import { plural } from "../text/human";
import { Button } from "../ui/Button";
import { Section } from "../ui/Section";
import { Empty, Loading, ProblemNote } from "../ui/states";

const PAGE = 100;

export function LinesSection({ job }: { job: number }) {
  const [text] = useWord("lines");
  return (
    <Section
      title="Search all output"
      aside={<SearchField name="lines" label="Find in the output of all tasks" placeholder="Find in all tasks" />}
    >
      {text ? (
        <FoundLines key={text} job={job} text={text} />
      ) : (
        <p class="faint">Find a text in what they printed.</p>
      )}
    </Section>
  );
}

interface Found {
  lines: FoundLine[];
  /** Where the search continues; null: all tasks are searched; undefined: it is searching. */
  next: string | null | undefined;
  problem: Problem | null;
}

function FoundLines({ job, text }: { job: number; text: string }) {
  const [{ lines, next, problem }, setFound] = useState<Found>({ lines: [], next: undefined, problem: null });
  const [cursor, setCursor] = useState<string | null>(null);

  useEffect(() => {
    const controller = new AbortController();
    setFound((before) => ({ ...before, next: undefined }));
    get<Page<FoundLine>>(`/jobs/${job}/lines`, { text, cursor, limit: PAGE }, controller.signal)
      .then((page) => setFound((all) => ({ lines: [...all.lines, ...page.items], next: page.next, problem: null })))
      .catch((error: unknown) => {
        if (!controller.signal.aborted) setFound((all) => ({ ...all, next: null, problem: asProblem(error) }));
      });
    return () => controller.abort();
  }, [cursor]);

  if (problem) return <ProblemNote problem={problem} />;
  return (
    <>
      {lines.length > 0 && (
        <ul class="found-lines">
          {lines.map((line) => (
            <Hit key={`${line.task} ${line.stream} ${line.line}`} hit={line} text={text} />
          ))}
        </ul>
      )}
      {next === undefined && <Loading what="the output of all tasks" />}
      {next === null && lines.length === 0 && <Empty>No task has printed “{text}”.</Empty>}
      {next === null && lines.length > 0 && <p class="faint">{plural(lines.length, "line")} in all tasks.</p>}
      {typeof next === "string" && (
        <p>
          <span class="faint">{plural(lines.length, "line")} so far. </span>
          <Button onClick={() => setCursor(next)}>Search further tasks</Button>
        </p>
      )}
    </>
  );
}

function Hit({ hit, text }: { hit: FoundLine; text: string }) {
  const [job, task] = hit.task.split(".");
  const words = new URLSearchParams({ output: hit.stream, line: `${hit.stream}-${hit.line}`, find: text });
  return (
    <li>
      <Link to={`/jobs/${job}/tasks/${task}?${words}`} class="number">
        {hit.task}
      </Link>{" "}
      <span class="faint number">
        {hit.stream}:{hit.line}
      </span>{" "}
      <code>{hit.text}</code>
    </li>
  );
}
