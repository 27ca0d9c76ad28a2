import { describe, expect, it } from "vitest";
import type { NetworkNode, NetworkView } from "../src/api/types";
import { pointOf, rate, rowsOf, shareOf, strokeOf, widthOf } from "../src/workers/network";

const node = (name: string, parent: string | null, more: Partial<NetworkNode> = {}): NetworkNode => ({
  name,
  parent,
  is_switch: name.startsWith("s"),
  known_by: parent === null ? null : "assumed",
  up: 125e6,
  down: 125e6,
  flowing_up: 0,
  flowing_down: 0,
  ...more,
});

const view = (...nodes: NetworkNode[]): NetworkView => ({
  file: null,
  peers: true,
  nodes,
  flows: [],
  measurement: { is_running: false, probes: 0, outcome: "" },
});

describe("the picture of the network", () => {
  it("has parents above their children, hosts before switches", () => {
    const rows = rowsOf(view(node("s0", null), node("s1", "s0"), node("a", "s1"), node("master", "s0")));
    expect(rows.map((row) => [row.node?.name, row.depth, row.parent])).toEqual([
      ["s0", 0, -1],
      ["master", 1, 0],
      ["s1", 1, 0],
      ["a", 2, 2],
    ]);
    expect(widthOf(rows)).toBeGreaterThan(pointOf(rows[3]!, 3)[0]);
  });

  it("leaves out hosts of a large switch, but none along whose link something flows", () => {
    const hosts = Array.from({ length: 60 }, (_, number) => node(`h${number}`, "s0"));
    hosts[55] = node("busy", "s0", { flowing_up: 1 });
    const rows = rowsOf(view(node("s0", null), ...hosts));
    expect(rows).toHaveLength(42);
    expect(rows.some((row) => row.node?.name === "busy")).toBe(true);
    expect(rows.at(-1)).toMatchObject({ node: null, leftOut: 20 });
  });

  it("draws wide links wider, and how much of one is in use", () => {
    expect(strokeOf(node("a", "s0", { up: 1.25e9 }))).toBeGreaterThan(strokeOf(node("a", "s0")));
    expect(shareOf(node("a", "s0", { flowing_down: 25e6 }))).toBeCloseTo(0.2);
    expect(shareOf(node("s0", null, { up: 0, down: 0 }))).toBe(0);
  });

  it("says rates as the command line does", () => {
    expect([125e6, 3.0375e6, 0].map(rate)).toEqual(["1 Gbit/s", "24.3 Mbit/s", "0 bit/s"]);
  });
});
