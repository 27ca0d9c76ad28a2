import { describe, expect, it } from "vitest";
import { Bars, Look } from "../src/timeline/scene/bars";
import { barAt, firstEndingAfter, pack, rowsOf } from "../src/timeline/scene/rows";
import { type Attempt, timeline } from "./attempts";

function barsOf(attempts: Attempt[]): Bars {
  const bars = new Bars();
  bars.merge(timeline(attempts));
  return bars;
}

describe("packing into lanes", () => {
  it("gives what overlaps a lane of its own, and reuses the first that is free", () => {
    expect(pack([0, 1, 5, 6], [4, 10, 7, 8])).toEqual([0, 1, 0, 2]);
  });

  it("takes ends that were put down a moment late for what they are", () => {
    expect(pack([0, 3.98], [4, 9])).toEqual([0, 0]);
  });

  it("never puts what goes on below something later", () => {
    expect(pack([0, 100], [Infinity, 200])).toEqual([0, 1]);
  });

  it("shows idle slots, and rows beyond the slots where more ran", () => {
    const bars = barsOf([
      ["1.1.1", "a", 0, 9],
      ["1.2.1", "a", 1, 8],
      ["1.3.1", "a", 2, 7],
    ]);
    expect(rowsOf(bars, 0, 1)).toHaveLength(3);
    expect(rowsOf(bars, 0, 5).map((row) => row.bars.length)).toEqual([1, 1, 1, 0, 0]);
  });
});

describe("finding a bar", () => {
  const bars = barsOf([
    ["1.1.1", "a", 0, 10],
    ["1.2.1", "a", 20, 30],
    ["1.3.1", "a", 31, null],
  ]);
  const row = rowsOf(bars, 0, 1)[0]!;

  it("finds the one at a time, also one that goes on", () => {
    expect([barAt(bars, row, 5, 0), barAt(bars, row, 25, 0), barAt(bars, row, 5000, 0)]).toEqual([0, 1, 2]);
  });

  it("finds none between two, unless one is within reach: then the nearer one", () => {
    expect(barAt(bars, row, 15, 1)).toBeNull();
    expect(barAt(bars, row, 18, 3)).toBe(1);
    expect(barAt(bars, row, 30.9, 3)).toBe(2);
  });

  it("begins to look at the first that ends after a time", () => {
    expect([
      firstEndingAfter(bars, row, -1),
      firstEndingAfter(bars, row, 10),
      firstEndingAfter(bars, row, 1e9),
    ]).toEqual([0, 1, 2]);
  });
});

describe("merging answers", () => {
  it("takes news of known attempts in place, and names the workers whose rows have changed", () => {
    const bars = barsOf([
      ["1.1.1", "a", 0, null],
      ["1.2.1", "b", 0, null],
    ]);
    const changed = bars.merge(
      timeline([
        ["1.2.1", "b", 0, 5],
        ["2.1.1", "c", 6, null],
      ]),
    );
    expect([...changed].map((worker) => bars.workers[worker])).toEqual(["b", "c"]);
    expect(bars.count).toBe(3);
    expect(bars.look[1]).toBe(Look.Won);
    expect(bars.end[1]).toBe(5);
  });

  it("keeps a worker's bars by start, however late one is heard of", () => {
    const bars = barsOf([["1.2.1", "a", 10, 20]]);
    bars.merge(timeline([["1.1.1", "a", 0, 5]]));
    expect(bars.ofWorker[0]!.map((bar) => bars.attempt[bar])).toEqual(["1.1.1", "1.2.1"]);
  });

  it("tells winners from losers", () => {
    const looks = barsOf([
      ["1.1.1", "a", 0, 1],
      ["1.1.2", "a", 2, 3, "succeeded", false],
      ["1.1.3", "a", 4, 5, "cancelled", false],
      ["1.1.4", "a", 6, 7, "failed", false],
      ["1.1.5", "a", 8, null, "lost", false],
      ["1.1.6", "a", null, null, "dispatched", false],
    ]).look;
    expect(looks).toEqual([Look.Won, Look.Beaten, Look.Beaten, Look.Failed, Look.Lost, Look.Waiting]);
  });
});

describe("slots that a worker says", () => {
  const succeeded = ["succeeded", true] as const;

  it("are the rows, whatever the clocks of frames say; an attempt ends where the next in its slot begins", () => {
    const bars = barsOf([
      ["1.1.1", "a", 0, 9.4, ...succeeded, 1],
      ["1.2.1", "a", 0, 5, ...succeeded, 3],
      ["1.3.1", "a", 9, 12, ...succeeded, 1],
    ]);
    expect(rowsOf(bars, 0, 2).map((row) => row.bars)).toEqual([[0, 2], [], [1]]);
    expect(bars.end[0]).toBe(9);
  });

  it("leave the rest to those whose worker said none, before an upgrade", () => {
    const bars = barsOf([
      ["1.1.1", "a", 0, 10],
      ["1.2.1", "a", 2, 8],
      ["1.3.1", "a", 11, 20, ...succeeded, 2],
      ["1.4.1", "a", 12, 18],
    ]);
    expect(rowsOf(bars, 0, 2).map((row) => row.bars)).toEqual([
      [0, 3],
      [1, 2],
    ]);
  });
});

describe("attempts that wait at their worker", () => {
  it("get no rows", () => {
    const waiting: Attempt[] = [
      ["1.2.1", "a", null, null, "dispatched"],
      ["1.3.1", "a", null, null, "dispatched"],
    ];
    const bars = barsOf([["1.1.1", "a", 0, null], ...waiting]);
    expect(rowsOf(bars, 0, 1).map((row) => row.bars.length)).toEqual([1]);
    expect(rowsOf(bars, 0, 2).map((row) => row.bars.length)).toEqual([1, 0]);
  });
});

describe("lost attempts, to which the master gives no end", () => {
  const lost: Attempt = ["1.1.1", "a", 0, null, "lost", false];

  it("last until their task was tried again", () => {
    const bars = barsOf([lost, ["1.1.2", "b", 40, null]]);
    bars.closeLost(0, true);
    expect(bars.end[0]).toBe(40);
    expect([bars.isGuessed[0], bars.isGuessed[1]]).toEqual([true, false]);
  });

  it("of a gang do not end because the member of the next rank began with them", () => {
    const members: Attempt[] = [lost, ["1.1.2", "b", 0, null], ["1.1.3", "c", 0, null]];
    const alone = barsOf(members);
    alone.closeLost(0, true);
    expect(alone.end[0]).toBe(Infinity);
    const moved = barsOf([...members, ["1.1.4", "b", 70, null]]);
    moved.closeLost(0, true);
    expect(moved.end[0]).toBe(70);
  });

  it("last until now while their worker is away, and until its next attempt once it is back", () => {
    const bars = barsOf([lost, ["2.1.1", "a", 60, null]]);
    bars.closeLost(0, true);
    expect(bars.end[0]).toBe(Infinity);
    bars.closeLost(0, false);
    expect(bars.end[0]).toBe(60);
  });

  it("have an end that is no guess once they are over", () => {
    const bars = barsOf([["1.1.1", "a", 0, 30, "lost", false]]);
    bars.closeLost(0, true);
    expect([bars.end[0], bars.isGuessed[0]]).toEqual([30, false]);
  });
});
