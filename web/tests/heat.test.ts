import { describe, expect, it } from "vitest";
import { marked } from "../src/jobs/sweep/paint";
import type { SweepRow } from "../src/jobs/sweep/rows";

const cell = (...states: SweepRow["state"][]): SweepRow[] => states.map((state) => ({ state }) as SweepRow);

describe("a heat map", () => {
  it("marks failed cells whatever it is coloured by", () => {
    for (const measure of ["state", "took", "metric:loss"] as const) {
      expect(marked(cell("succeeded", "failed"), measure)).toBe("failed");
    }
  });

  it("marks other states only where colours are states", () => {
    expect(marked(cell("running"), "state")).toBe("running");
    expect(marked(cell("running"), "metric:loss")).toBeNull();
    expect(marked(cell("succeeded"), "took")).toBeNull();
  });
});
