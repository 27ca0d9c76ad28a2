import { expect, test } from "vitest";
import { isBinary, linesOf } from "../src/tasks/terminal";

const shown = (text: string): string =>
  linesOf(text)
    .map((runs) => runs.map((run) => run.text).join(""))
    .join("\n");

test("colours are styles, and no escape code is left", () => {
  expect(linesOf("a \x1b[1;31mred\x1b[0m b\x1b]0;title\x07")).toEqual([
    [
      { text: "a ", style: "" },
      { text: "red", style: "ink-red ink-bold" },
      { text: " b", style: "" },
    ],
  ]);
  expect(linesOf("\x1b[38;5;196mx\x1b[38;2;0;200;0my")).toEqual([
    [
      { text: "x", style: "ink-red" },
      { text: "y", style: "ink-green" },
    ],
  ]);
});

test("a colour goes on over the lines until it is taken back", () => {
  expect(linesOf("\x1b[32mone\ntwo\x1b[0m\nthree")).toEqual([
    [{ text: "one", style: "ink-green" }],
    [{ text: "two", style: "ink-green" }],
    [{ text: "three", style: "" }],
  ]);
});

test("a progress bar is its last state; what is longer stays where it is not written over", () => {
  expect(shown("\r  1 %\r 50 %\r100 %\ndone")).toBe("100 %\ndone");
  expect(shown("hello\rj")).toBe("jello");
  expect(shown("hello\r\x1b[Kj")).toBe("j");
  expect(shown("ab\b\bc")).toBe("cb");
  expect(shown("windows\r\nlines\r\n")).toBe("windows\nlines");
});

test("an empty line is one, but for the end of the last", () => {
  expect(linesOf("a\n\nb\n")).toEqual([[{ text: "a", style: "" }], [], [{ text: "b", style: "" }]]);
  expect(linesOf("")).toEqual([]);
});

test("bytes that are no text are told from text in any language", () => {
  expect(isBinary("\u0000\u0001ELF\ufffd\ufffd\u0000")).toBe(true);
  expect(isBinary("naïve 日本語 \x1b[31m")).toBe(false);
  expect(isBinary("")).toBe(false);
});
