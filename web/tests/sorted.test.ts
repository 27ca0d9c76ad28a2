import { expect, test } from "vitest";
import { sorted } from "../src/lists/sorted";

const COLUMNS = [{ name: "Speed", order: (row: { speed: number | null }) => row.speed }];
const ROWS = [{ speed: 1 }, { speed: null }, { speed: 3 }, { speed: 2 }];
const speeds = (column: string | null, isDown: boolean) =>
  sorted(ROWS, COLUMNS, { column, isDown }).map(({ speed }) => speed);

test("rows are sorted either way, and what is not known comes last", () => {
  expect(speeds("Speed", true)).toEqual([3, 2, 1, null]);
  expect(speeds("Speed", false)).toEqual([1, 2, 3, null]);
});

test("without a column that can be sorted by, rows stay as they come", () => {
  expect(speeds(null, false)).toEqual(speeds("Other", true));
});

test("names are in the order in which people count", () => {
  const rows = ["pc-10", "pc-9", "pc-1"].map((name) => ({ name }));
  const columns = [{ name: "Worker", order: (row: { name: string }) => row.name }];
  expect(sorted(rows, columns, { column: "Worker", isDown: false }).map(({ name }) => name)).toEqual([
    "pc-1",
    "pc-9",
    "pc-10",
  ]);
});
