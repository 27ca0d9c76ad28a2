import { expect, test } from "vitest";
import { Bars } from "../src/timeline/scene/bars";
import { timeline } from "./attempts";

test("what ended before a time is dropped, and what goes on or ended later keeps its place in its rows", () => {
  const bars = new Bars();
  bars.merge(
    timeline([
      ["1.1.1", "old", 0, 10],
      ["2.1.1", "pc", 30, 40, "succeeded", true, 2],
      ["2.2.1", "pc", 5, null, "running", false, 1],
      ["1.2.1", "pc", 1, 19],
    ]),
  );
  bars.held = [
    { job: 1, task: 2, since: 12, until: 15 } as Bars["held"][number],
    { job: 3, task: 1, since: 12, until: null } as Bars["held"][number],
  ];

  const kept = bars.endingAfter(20);

  expect(kept.attempt).toEqual(["2.1.1", "2.2.1"]);
  expect(kept.workers).toEqual(["pc"]);
  expect(kept.ofWorker).toEqual([[1, 0]]);
  expect([kept.slot[0], kept.end[1], kept.jobNames.get(2)]).toEqual([2, Infinity, "job-2"]);
  expect(kept.held.map((hold) => hold.job)).toEqual([3]);
  expect([kept.placeOf("2.2.1"), kept.placeOf("1.1.1")]).toEqual([1, null]);
});

test("an attempt that was kept is known when it comes again", () => {
  const bars = new Bars();
  bars.merge(timeline([["1.1.1", "pc", 0, null]]));
  const kept = bars.endingAfter(20);
  kept.merge(timeline([["1.1.1", "pc", 0, 30]]));
  expect([kept.count, kept.end[0]]).toEqual([1, 30]);
});
