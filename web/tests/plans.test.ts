import { describe, expect, it } from "vitest";
import type { WaitingPlan } from "../src/api/types";
import { piecesOf } from "../src/timeline/scene/plans";
import { live, spanOf } from "../src/timeline/scene/window";

const plan = (job: number, start: number | null, machines: string[], slots = 1): WaitingPlan =>
  ({ job, start_at: start, limit_s: 10, machines, slots }) as WaitingPlan;

const rows: Record<string, { firstRow: number; rowCount: number }> = {
  ant: { firstRow: 0, rowCount: 2 },
  bee: { firstRow: 2, rowCount: 1 },
};

describe("planned starts", () => {
  it("are drawn on each slot that they take, beside others of the same time", () => {
    const pieces = piecesOf(
      [plan(1, 5, ["ant", "bee"]), plan(2, 7, ["ant"]), plan(3, 20, ["ant"], 2)],
      (name) => rows[name],
    );
    expect(pieces.map(({ plan, row, start, end }) => [plan.job, row, start, end])).toEqual([
      [1, 0, 5, 15],
      [2, 1, 7, 17],
      [3, 0, 20, 30],
      [3, 1, 20, 30],
      [1, 2, 5, 15],
    ]);
    expect(pieces.filter((piece) => piece.isFirst).map((piece) => piece.plan.job)).toEqual([1, 2, 3]);
  });

  it("are left out where there is no start, or no row", () => {
    expect(piecesOf([plan(1, null, []), plan(2, 5, ["cat"])], (name) => rows[name])).toEqual([]);
  });

  it("have room in a live window, whose length stays", () => {
    expect(live(100, 1000)).toEqual({ since: 903, until: 1003 });
    expect(live(100, 1000, 1020)).toEqual({ since: 921, until: 1021 });
    const most = live(100, 1000, 5000);
    expect([most.until, spanOf(most)]).toEqual([1045, 100]);
  });
});
