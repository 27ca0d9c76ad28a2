import { expect, test } from "vitest";
import { rowsBetween } from "../src/lists/rows";
import { columnsOf } from "../src/workers/Sparkline";

test("the rows that are drawn are those in sight, and there is always one", () => {
  expect(rowsBetween(-600, 800, 40, 500)).toEqual({ from: 0, to: 20 });
  expect(rowsBetween(4010, 4800, 40, 500)).toEqual({ from: 100, to: 120 });
  expect(rowsBetween(99_000, 99_900, 40, 500)).toEqual({ from: 499, to: 500 });
  expect(rowsBetween(-5000, -4000, 40, 500)).toEqual({ from: 0, to: 1 });
});

test("a sparkline has a column for each value, and none where nothing is known", () => {
  expect(columnsOf([2, null, 0, 4], 4)).toBe("M0 4V2h1V4zM3 4V0h1V4z");
});
