import { useEffect, useState } from "preact/hooks";
import { API, asProblem, type Problem, request } from "../api/client";
import type { OutputFile, TaskDetail } from "../api/types";
import { useResource } from "../live/resource";
import { amount } from "../text/human";
import { Section } from "../ui/Section";
import { encodedPath, kindOf, pictureType, TEXT_LIMIT_BYTES } from "./outputs";

/** Files that the task has left, pictures and texts in place. */
export function OutputsSection({ path, task }: { path: string; task: TaskDetail }) {
  if (!task.outputs?.length) return null;
  return (
    <Section title="Files">
      <ul class="files">
        {task.outputs.map((file) => (
          <OutputItem key={file.path} file={file} at={`${path}/outputs/${encodedPath(file.path)}`} />
        ))}
      </ul>
    </Section>
  );
}

function OutputItem({ file, at }: { file: OutputFile; at: string }) {
  const kind = kindOf(file.path, file.size_bytes);
  return (
    <li>
      <p>
        <a href={API + at} download={file.path.slice(file.path.lastIndexOf("/") + 1)}>
          {file.path}
        </a>{" "}
        <span class="faint number">{amount(file.size_bytes)}</span>
      </p>
      {kind === "picture" && <Picture file={file} at={at} />}
      {kind === "text" && <Text file={file} at={at} />}
    </li>
  );
}

function Picture({ file, at }: { file: OutputFile; at: string }) {
  const [source, setSource] = useState<string | null>(null);
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    let made: string | null = null;
    const controller = new AbortController();
    void request("GET", at, { signal: controller.signal })
      .then((response) => response.arrayBuffer())
      .then((data) => setSource((made = URL.createObjectURL(new Blob([data], { type: pictureType(file.path) })))))
      .catch((error: unknown) => controller.signal.aborted || setProblem(asProblem(error)));
    return () => {
      controller.abort();
      if (made) URL.revokeObjectURL(made);
    };
  }, [at]);
  if (problem) return <NotThere problem={problem} />;
  return source && <img src={source} alt={`Picture ${file.path}`} />;
}

function Text({ file, at }: { file: OutputFile; at: string }) {
  const text = useResource(`${at}#text`, async (signal) => {
    const headers = { Range: `bytes=0-${TEXT_LIMIT_BYTES - 1}` };
    return file.size_bytes ? (await request("GET", at, { headers, signal })).text() : "";
  });
  if (text.problem) return <NotThere problem={text.problem} />;
  if (!text.data) return null;
  return (
    <>
      <pre class="code log" tabIndex={0}>
        {text.data.slice(0, TEXT_LIMIT_BYTES)}
      </pre>
      {file.size_bytes > TEXT_LIMIT_BYTES && <p class="faint">Its first {amount(TEXT_LIMIT_BYTES)}.</p>}
    </>
  );
}

/** Files are not kept for ever. */
function NotThere({ problem }: { problem: Problem }) {
  return <p class="faint">It cannot be shown: {problem.message}.</p>;
}
