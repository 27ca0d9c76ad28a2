import { afterEach, expect, test, vi } from "vitest";
import { NO_PARTS, partsOf, readParts } from "../src/tasks/parts";

const LINES = Array.from({ length: 1000 }, (_, number) => `line ${number} äö\n`).join("");
const BYTES = new TextEncoder().encode(LINES);

afterEach(() => vi.unstubAllGlobals());

function whole(parts: { head: string; missingBytes: number; end: string }): void {
  const shown = new Blob([parts.head, parts.end]).size;
  expect(shown + parts.missingBytes).toBe(BYTES.length);
  expect(LINES.startsWith(parts.head)).toBe(true);
  expect(LINES.endsWith(parts.end)).toBe(true);
  for (const part of [parts.head, parts.end]) expect(part).toMatch(/^line [^]*\n$/);
}

test("of what is followed beginning and end stay, in whole lines, and what is missing is counted", () => {
  let parts = NO_PARTS;
  for (let place = 0; place < LINES.length; place += 37) parts = partsOf(parts, LINES.slice(place, place + 37), 500);
  expect(parts.missingBytes).toBeGreaterThan(0);
  expect(parts.head.length + parts.end.length).toBeLessThanOrEqual(1500);
  whole(parts);
  expect(partsOf(NO_PARTS, "short", 500)).toEqual({ ...NO_PARTS, head: "short" });
});

test("of a long output two pieces are asked for, of a short one one", async () => {
  const asked: string[] = [];
  vi.stubGlobal("fetch", (_: string, { headers }: { headers: Record<string, string> }) => {
    asked.push(headers["Range"]!);
    const [first, last] = headers["Range"]!.slice("bytes=".length).split("-");
    const piece = BYTES.slice(Number(first), last ? Number(last) + 1 : undefined);
    const range = `bytes ${first}-${Number(first) + piece.length - 1}/${BYTES.length}`;
    return Promise.resolve(new Response(piece, { status: 206, headers: { "Content-Range": range } }));
  });
  whole(await readParts("/stdout", null, new AbortController().signal, 500));
  expect(asked).toEqual(["bytes=0-999", `bytes=${BYTES.length - 500}-`]);
  expect(await readParts("/stdout", null, new AbortController().signal, BYTES.length)).toEqual({
    ...NO_PARTS,
    head: LINES,
  });
});
