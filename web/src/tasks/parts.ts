/** The beginning and the end of a long output, and how much is missing between them. */
import { request } from "../api/client";

/** Of longer output than twice this, so much is shown of its beginning, and so much of its end. */
export const PART = 200_000;

export interface Parts {
  head: string;
  /** Between head and end: 0 where the whole output is shown, which then is all in `head`. */
  missingBytes: number;
  end: string;
}

export const NO_PARTS: Parts = { head: "", missingBytes: 0, end: "" };

/** Returns the parts of an output that goes on with this text. */
export function partsOf(before: Parts, text: string, part = PART): Parts {
  if (!before.missingBytes && before.head.length + text.length <= 2 * part)
    return { ...before, head: before.head + text };
  const isFirst = !before.missingBytes;
  const head = isFirst ? headOf((before.head + text).slice(0, part)) : before.head;
  const rest = isFirst ? (before.head + text).slice(head.length) : before.end + text;
  // Of the end a little more may be shown, so that not every piece cuts it anew.
  const end = isFirst || rest.length > 2 * part ? endOf(rest.slice(-part)) : rest;
  return { head, missingBytes: before.missingBytes + bytesOf(rest.slice(0, rest.length - end.length)), end };
}

/** Reads an output that goes on no more, of a long one its two ends alone. */
export async function readParts(path: string, rank: number | null, signal: AbortSignal, part = PART): Promise<Parts> {
  const query = { rank };
  const first = await request("GET", path, { query, headers: { Range: `bytes=0-${2 * part - 1}` }, signal });
  const text = await first.text();
  const totalBytes = first.status === 206 ? lengthOf(first) : 0;
  if (totalBytes <= 2 * part) return { ...NO_PARTS, head: text };
  const last = await request("GET", path, { query, headers: { Range: `bytes=${totalBytes - part}-` }, signal });
  const head = headOf(text.slice(0, part));
  const end = endOf(await last.text());
  return { head, missingBytes: totalBytes - bytesOf(head) - bytesOf(end), end };
}

/** Ends with a whole line, where there is one. */
const headOf = (text: string): string => text.slice(0, text.lastIndexOf("\n") + 1 || text.length);

/** Begins with a whole line, where there is one. */
const endOf = (text: string): string => text.slice(text.indexOf("\n") + 1);

const bytesOf = (text: string): number => new Blob([text]).size;

/** The length of the whole, of which an answer has a part. */
const lengthOf = (answer: Response): number => Number(answer.headers.get("Content-Range")?.split("/")[1] ?? 0);
