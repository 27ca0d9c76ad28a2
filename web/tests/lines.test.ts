import { expect, test } from "vitest";
import { errorLine, found, numbered, placeOf } from "../src/tasks/lines";

const whole = (head: string) => numbered({ head, missingBytes: 0, end: "" });

test("lines count from 1, and after a gap from the end", () => {
  const { head, end } = numbered({ head: "a\nb\n", missingBytes: 9, end: "y\nz\n" });
  expect(head.map((line) => line.number)).toEqual([1, 2]);
  expect(end.map((line) => line.number)).toEqual([-2, -1]);
});

test("a search finds lines whatever their capitals and colours", () => {
  expect(found(whole("one\nL\x1b[31moss\x1b[0m 3\nloss 2\n"), "loss")).toEqual([2, 3]);
  expect(found(whole("one"), "")).toEqual([]);
});

test("the error of a failed task is its last line that looks like one, else its last line", () => {
  expect(errorLine(whole("Traceback\n  File x\nValueError: no\nbye\n"))).toBe(3);
  expect(errorLine(whole("one\ntwo\n"))).toBe(2);
  expect(errorLine(whole(""))).toBe(null);
});

test("the address names a line of a stream", () => {
  expect(placeOf("stderr-12")).toEqual({ stream: "stderr", number: 12 });
  expect(placeOf("stdout--1")).toEqual({ stream: "stdout", number: -1 });
  expect(placeOf("12")).toBe(null);
});
