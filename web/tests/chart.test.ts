import { describe, expect, it } from "vitest";
import { ticks } from "../src/timeline/paint/axis";
import { Bars } from "../src/timeline/scene/bars";
import type { Brush, Rects } from "../src/timeline/paint/brush";
import { schemeOf } from "../src/timeline/paint/colours";
import { AXIS_PX, jobAt, layOut, rowAt, Scale } from "../src/timeline/scene/layout";
import { paint, shortened } from "../src/timeline/paint/paint";
import { SceneBuilder } from "../src/timeline/scene/scene";
import { SvgBrush } from "../src/timeline/paint/svgBrush";
import { live, panned, zoomed } from "../src/timeline/scene/window";
import { type Attempt, timeline } from "./attempts";

const scheme = schemeOf("light");

function sceneOf(attempts: Attempt[]) {
  const bars = new Bars();
  const changed = bars.merge(timeline(attempts));
  return new SceneBuilder(bars).build(changed, new Map());
}

function picture(scene: ReturnType<typeof sceneOf>, since: number, until: number, width = 932) {
  const layout = layOut(scene, width, 400);
  return { scene, layout, window: { since, until }, now: until, scrolled: 0, scheme, chosen: null, selection: null };
}

class Counter implements Brush {
  readonly painted: Record<string, number> = {};
  rects(colour: string, rects: Rects): void {
    this.painted[colour] = (this.painted[colour] ?? 0) + rects.length / 4;
  }
  hatch(): void {}
  outlines(): void {}
  line(): void {}
  text(): void {}
  clip(): void {}
}

describe("the window", () => {
  it("keeps the time under the pointer where it is", () => {
    const closer = zoomed({ since: 0, until: 100 }, 0.5, 25);
    expect(closer).toEqual({ since: 12.5, until: 62.5 });
  });

  it("neither vanishes nor outgrows the calendar", () => {
    expect(zoomed({ since: 0, until: 3 }, 1e-9, 1).until - zoomed({ since: 0, until: 3 }, 1e-9, 1).since).toBe(2);
    expect(panned({ since: 5, until: 6 }, -5)).toEqual({ since: 0, until: 1 });
  });

  it("has the present inside where it is live", () => {
    const window = live(100, 1000);
    expect(window.until).toBeGreaterThan(1000);
    expect(window.until - window.since).toBeCloseTo(100);
  });
});

describe("names of workers", () => {
  it("are cut in the middle: they differ at either end", () => {
    expect(shortened("light-108", 8)).toBe("ligh…108");
    expect(shortened("light-8", 8)).toBe("light-8");
  });

  it("are never half above the chart", () => {
    const names = Array.from({ length: 300 }, (_, place): Attempt => [`1.${place + 1}.1`, `pc-${place}`, 0, 9]);
    const places: number[] = [];
    const brush = new Counter() as Brush;
    brush.text = (_, text, __, y) => void (text.startsWith("pc-") && places.push(y));
    paint(picture(sceneOf(names), 0, 10), brush);
    expect(Math.min(...places)).toBeGreaterThanOrEqual(AXIS_PX + 6);
  });
});

describe("the layout", () => {
  const scene = sceneOf([
    ["1.1.1", "pc-10", 0, 9],
    ["1.2.1", "pc-2", 0, 9],
    ["1.3.1", "pc-2", 1, 9],
  ]);
  const layout = layOut(scene, 900, 400);

  it("has workers in the order that people count in", () => {
    expect(scene.groups.map((group) => [group.name, group.rowCount])).toEqual([
      ["pc-2", 2],
      ["pc-10", 1],
    ]);
  });

  it("finds the row of each pixel that it gave to one", () => {
    for (const [row, top] of layout.tops.entries()) expect(rowAt(layout, 24 + top + 1, 0)).toBe(row);
    expect(rowAt(layout, 3, 0)).toBe(-1);
    expect(rowAt(layout, 24 + layout.rowsPx + 20, 0)).toBe(-1);
    expect(jobAt(scene, layout, layout.jobsTop + 1)?.job).toBe(1);
    expect(jobAt(scene, layout, layout.jobsTop - 5)).toBeUndefined();
  });

  it("turns times into pixels and back", () => {
    const scale = new Scale({ since: 100, until: 200 }, layout);
    expect(scale.time(scale.x(142))).toBeCloseTo(142);
    expect(scale.x(100)).toBe(layout.gutter);
  });
});

describe("painting", () => {
  it("merges what is narrower than a pixel: rectangles follow the pixels, not the bars", () => {
    const many = sceneOf(Array.from({ length: 20_000 }, (_, at): Attempt => [`1.${at + 1}.1`, "a", at, at + 0.9]));
    const counter = new Counter();
    paint(picture(many, 0, 20_000), counter);
    expect(counter.painted[scheme.jobs[0]!]).toBeLessThan(900);
    expect(counter.painted[scheme.jobs[0]!]).toBeGreaterThan(700);
  });

  it("leaves out what is outside the window", () => {
    const scene = sceneOf([
      ["1.1.1", "a", 0, 5],
      ["2.1.1", "a", 50, 60],
      ["3.1.1", "a", 90, 95],
    ]);
    const brush = new SvgBrush();
    paint(picture(scene, 40, 70), brush);
    const bars = brush.finish(900, 400, "#fff").split(`fill="${scheme.jobs[0]}"`).length - 1;
    expect(bars).toBe(1); // its row among the jobs, which is clipped
  });

  it("draws names as text, whatever they hold", () => {
    const brush = new SvgBrush();
    brush.text("#000", `<script>&"`, 0, 0);
    expect(brush.finish(1, 1, "#fff")).toContain("&lt;script&gt;&amp;&quot;");
  });
});

describe("the axis", () => {
  it("has ticks on round times of the viewer's zone, not too close", () => {
    const found = ticks(1_795_279_503, 1_795_283_103, 1000);
    expect(found.length).toBeGreaterThan(5);
    expect(found.length).toBeLessThanOrEqual(12);
    expect(found.every(({ at }) => new Date(at * 1000).getSeconds() === 0)).toBe(true);
  });

  it("counts days by the calendar", () => {
    const found = ticks(1_795_000_000, 1_795_000_000 + 20 * 86400, 1000);
    expect(found.every(({ at, isDay }) => isDay && new Date(at * 1000).getHours() === 0)).toBe(true);
  });
});
