/** Output of a task, as the master streams it. */
import { useEffect, useState } from "preact/hooks";
import { asProblem, type Problem, request } from "../api/client";
import { link } from "../live/changes";
import { NO_PARTS, type Parts, partsOf, readParts } from "./parts";

const AGAIN_MS = 2000;

export interface Log extends Parts {
  isRead: boolean;
  problem: Problem | null;
}

const NOTHING: Log = { ...NO_PARTS, isRead: false, problem: null };

/** follow: stream until the task has ended; once: read the present output; null: not yet. */
export type Way = "follow" | "once" | null;

/**
 * `path` ends in stdout or stderr; `rank`: of a gang's member, else null; with another `version` there is something else to read. What was read stays until
 * there is more. A stream that breaks off, because the master went away or nobody looked, is begun again once the
 * master is there.
 */
export function useLog(path: string, rank: number | null, way: Way, version: number): Log {
  const [log, setLog] = useState<Log>(NOTHING);
  const [turn, setTurn] = useState(0);
  const isFollowed = way === "follow";
  const isPossible = way !== null && (!isFollowed || link.value === "live");

  useEffect(() => setLog(NOTHING), [path]);
  useEffect(() => {
    if (way === null) setLog({ ...NOTHING, isRead: true });
    if (!isPossible) return;
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    (isFollowed
      ? follow(path, rank, controller.signal, setLog)
      : readOnce(path, rank, controller.signal, setLog)
    ).catch((error: unknown) => {
      if (controller.signal.aborted) return;
      const problem = asProblem(error);
      setLog((before) => failed(before, problem));
      if (isFollowed && problem.isAway) timer = setTimeout(() => setTurn((count) => count + 1), AGAIN_MS);
    });
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [path, way, isPossible, isFollowed ? turn : version]);

  return log;
}

/** The frame of the page already says when the master is unreachable. */
function failed(before: Log, problem: Problem): Log {
  const isExpected = problem.code === "no_output" || problem.code === "unreachable";
  return { ...before, isRead: true, problem: isExpected ? null : problem };
}

type Tell = (change: (before: Log) => Log) => void;

async function readOnce(path: string, rank: number | null, signal: AbortSignal, tell: Tell): Promise<void> {
  const parts = await readParts(path, rank, signal);
  tell(() => ({ ...parts, isRead: true, problem: null }));
}

async function follow(path: string, rank: number | null, signal: AbortSignal, tell: Tell): Promise<void> {
  const response = await request("GET", path, { query: { follow: true, rank }, signal });
  tell((before) => ({ ...before, isRead: true, problem: null }));
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  let parts = NO_PARTS;
  for (;;) {
    const { done, value } = await reader.read();
    parts = partsOf(parts, decoder.decode(value, { stream: !done }));
    const now = parts;
    tell(() => ({ ...now, isRead: true, problem: null }));
    if (done) return;
  }
}
