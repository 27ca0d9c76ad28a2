import { describe, expect, it } from "vitest";
import { Bars } from "../src/timeline/scene/bars";
import type { Brush, Rects } from "../src/timeline/paint/brush";
import { colourOf, schemeOf } from "../src/timeline/paint/colours";
import { paintDense } from "../src/timeline/paint/paintDense";
import { groupAt, layOut, rowAt, Scale } from "../src/timeline/scene/layout";
import { SceneBuilder } from "../src/timeline/scene/scene";
import { sumsOf } from "../src/timeline/scene/selection";
import { type Attempt, timeline } from "./attempts";

const scheme = schemeOf("light");
const NOTE = { slots: 2, isAway: false, isInUse: false };

function sceneOf(attempts: Attempt[], workers: string[] = []) {
  const bars = new Bars();
  const changed = bars.merge(timeline(attempts));
  return new SceneBuilder(bars).build(changed, new Map(workers.map((name) => [name, NOTE])));
}

const scene = sceneOf(
  [
    ["1.1.1", "a", 0, 100],
    ["2.1.1", "a", 50, 100],
    ["1.2.1", "b", 20, 40],
  ],
  ["a", "b"],
);

class Painter implements Brush {
  readonly rectangles: [string, ...Rects][] = [];
  rects(colour: string, rects: Rects): void {
    for (let at = 0; at < rects.length; at += 4) this.rectangles.push([colour, ...rects.slice(at, at + 4)]);
  }
  hatch(): void {}
  outlines(): void {}
  line(): void {}
  text(): void {}
  clip(): void {}
}

describe("one row a worker", () => {
  it("comes by itself where rows of slots would be many screens, and only where workers have several", () => {
    const names = Array.from({ length: 200 }, (_, place) => `pc-${place}`);
    expect(layOut(sceneOf([], names), 932, 400).isDense).toBe(true);
    expect(layOut(sceneOf([], names), 932, 400, "slots").isDense).toBe(false);
    expect(layOut(scene, 932, 400).isDense).toBe(false);
  });

  it("is as high as the worker is full", () => {
    const layout = layOut(scene, 932, 400, "workers");
    const window = { since: 0, until: 100 };
    const picture = { scene, layout, window, now: 100, scrolled: 0, scheme, chosen: null, selection: null };
    const painter = new Painter();
    paintDense(picture, new Scale(window, layout), painter);
    const heights = painter.rectangles.map(([, x, , width, height]) => [x! - layout.gutter, width, height]);
    const whole = layout.rowPx - 1;
    expect(heights).toContainEqual([0, 400, Math.round(whole / 2)]);
    expect(heights).toContainEqual([400, 400, whole]);
    expect(heights).toContainEqual([160, 160, Math.round(whole / 2)]);
    expect(painter.rectangles.filter(([colour]) => colour === colourOf(scheme, 1))).toHaveLength(3);
  });

  it("is found by its pixels", () => {
    const layout = layOut(scene, 932, 400, "workers");
    expect(scene.rows[rowAt(layout, 24 + layout.rowPx * 1.5, 0)]!.worker).toBe(scene.bars.placeOfWorker("b"));
    expect([0, 30, 399].map((y) => groupAt(scene, layout, y, 0))).toEqual([0, 0, 1]);
  });
});

describe("a selection", () => {
  it("sums up what lies in it, and only that part of it", () => {
    const sums = sumsOf(scene, { since: 30, until: 80, first: 0, last: 0 }, 1000);
    expect(sums).toMatchObject({ attempts: 2, tasks: 2, jobs: 2, workers: 1, slot_s: 80, useful_s: 80, share: 0.8 });
    expect(sumsOf(scene, { since: 30, until: 80, first: 1, last: 1 }, 1000)).toMatchObject({
      attempts: 1,
      slot_s: 10,
    });
  });

  it("ends now, where it goes beyond", () => {
    expect(sumsOf(scene, { since: 0, until: 400, first: 0, last: 1 }, 100).share).toBeCloseTo(170 / 400);
  });
});
