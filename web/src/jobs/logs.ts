/** What a task prints, as it comes where the master streams it. */
import { useEffect, useState } from "preact/hooks";
import { asProblem, type Problem, request } from "../api/client";

/** Of what is longer, the end is shown: so much a page can hold and a person read. */
const MOST_CHARACTERS = 400_000;

export interface Log {
  text: string;
  isCut: boolean;
  isRead: boolean;
  problem: Problem | null;
}

const NOTHING: Log = { text: "", isCut: false, isRead: false, problem: null };

/** follow: as it comes, until the task has ended; once: what there is; null: nothing yet. */
export type Way = "follow" | "once" | null;

/** `path` ends in stdout or stderr. */
export function useLog(path: string, way: Way): Log {
  const [log, setLog] = useState<Log>(NOTHING);

  useEffect(() => {
    const controller = new AbortController();
    const { signal } = controller;
    setLog({ ...NOTHING, isRead: way === null });
    if (way === null) return;
    request("GET", path, { query: way === "follow" ? { follow: true } : {}, signal })
      .then((response) => readStream(response, setLog))
      .catch((error: unknown) => {
        if (!signal.aborted) setLog((before) => failed(before, asProblem(error)));
      });
    return () => controller.abort();
  }, [path, way]);

  return log;
}

function failed(before: Log, problem: Problem): Log {
  return { ...before, isRead: true, problem: problem.code === "no_output" ? null : problem };
}

type Tell = (log: Log) => void;

async function readStream(response: Response, tell: Tell): Promise<void> {
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  let isCut = response.headers.get("X-Loopline-Cut") === "true";
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    text += decoder.decode(value, { stream: !done });
    if (text.length > MOST_CHARACTERS) {
      text = text.slice(-MOST_CHARACTERS);
      isCut = true;
    }
    tell({ text, isCut, isRead: true, problem: null });
    if (done) return;
  }
}
