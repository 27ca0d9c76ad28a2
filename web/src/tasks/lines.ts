/** The lines of an output: their numbers, which of them a search finds, and which one says why a task failed. */
import type { Parts } from "./parts";
import { linesOf, type Run } from "./terminal";

/** A line counts from 1; after a gap nobody knows how many there were, and lines count from the end: -1 is the last. */
export interface Line {
  number: number;
  runs: Run[];
  text: string;
}

export interface Lines {
  head: Line[];
  /** After the gap; empty where there is none. */
  end: Line[];
}

export type Stream = "stdout" | "stderr";

/** How far from the end an error is looked for. */
const LAST_LINES = 300;
const ERROR = /\b(\w*error|\w*exception|fatal|panic(ked)?|segmentation fault|killed|not found|cannot|failed)\b/i;
const PLACE = /^(stdout|stderr)-(-?\d+)$/;

export function numbered(parts: Parts): Lines {
  const [head, end] = [linesOf(parts.head), linesOf(parts.end)];
  return {
    head: head.map((runs, at) => line(runs, at + 1)),
    end: end.map((runs, at) => line(runs, at - end.length)),
  };
}

const line = (runs: Run[], number: number): Line => ({ number, runs, text: runs.map((run) => run.text).join("") });

/** The numbers of the lines that contain a text, in capitals or not. */
export function found({ head, end }: Lines, text: string): number[] {
  if (!text) return [];
  const wanted = text.toLowerCase();
  return [...head, ...end].filter((one) => one.text.toLowerCase().includes(wanted)).map((one) => one.number);
}

/** The number of the last line that looks like an error, else of the last line; null of no output. */
export function errorLine({ head, end }: Lines): number | null {
  const last = [...head.slice(-LAST_LINES), ...end.slice(-LAST_LINES)];
  return (last.findLast((one) => ERROR.test(one.text)) ?? last.at(-1))?.number ?? null;
}

/** A line as the address names it: `stderr-12`, `stdout--1` for the last one of a long output. */
export function placeOf(word: string | null): { stream: Stream; number: number } | null {
  const parts = PLACE.exec(word ?? "");
  return parts && { stream: parts[1] as Stream, number: Number(parts[2]) };
}
