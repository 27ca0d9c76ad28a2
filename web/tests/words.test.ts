import { describe, expect, it } from "vitest";
import { url } from "../src/api/client";
import type { JobView } from "../src/api/types";
import { energyWords, summed } from "../src/guarantee/ledger";
import { pieces } from "../src/jobs/pieces";
import { shellWord, wordsOf } from "../src/submit/words";
import { ordered, waitsFor } from "../src/jobs/jobs";
import { inOrder } from "../src/lists/steady";
import { encodedPath, kindOf } from "../src/tasks/outputs";
import { ago, amount, between, duration, endOfDay, percent, startOfDay } from "../src/text/human";
import { shares } from "../src/ui/shares";
import { withGaps } from "../src/ui/gaps";

describe("a job's tasks", () => {
  it("do not count as running while they wait at a worker for a slot", () => {
    expect(shares({ queued: 3, running: 258, prefetched: 256, succeeded: 5, failed: 0, cancelled: 0 })).toEqual([
      ["succeeded", 5],
      ["running", 2],
      ["prefetched", 256],
    ]);
  });
});

describe("numbers as people read them", () => {
  it("have two units at most", () => {
    expect([0.42, 12, 185, 7800, 367200, 6_166_195_200, null].map(duration)).toEqual([
      "0.4s",
      "12s",
      "3m 5s",
      "2h 10m",
      "4d 6h",
      "195y 193d",
      "–",
    ]);
  });

  it("are the same as on the command line for bytes", () => {
    expect([0, 512, 1500, 123_456, 2.5e9, 3e12].map(amount)).toEqual([
      "0 B",
      "512 B",
      "1.5 kB",
      "123 kB",
      "2.5 GB",
      "3.0 TB",
    ]);
  });

  it("take a day as a whole, in the viewer's zone", () => {
    const start = new Date(2026, 10, 21).getTime() / 1000;
    expect([startOfDay("2026-11-21"), endOfDay("2026-11-20")]).toEqual([start, start]);
    expect([startOfDay(null), startOfDay("soon"), endOfDay("")]).toEqual([null, null, null]);
  });

  it("say how long, and how long ago", () => {
    expect(between(10, null, 40)).toBe("30s");
    expect(between(null, null, 40)).toBe("–");
    expect(ago(99.5, 100)).toBe("just now");
  });

  it("never round an almost to a whole", () => {
    expect([percent(1, 2), percent(1, 1), percent(999, 1000), percent(1, 0)]).toEqual([
      "50 %",
      "100 %",
      "99.9 %",
      "–",
    ]);
  });
});

describe("jobs", () => {
  const job = (id: number, more: Partial<JobView> = {}) =>
    ({ id, state: "queued", finished_at: null, ...more }) as JobView;

  it("come in the scheduler's order; what it does not name yet comes last", () => {
    const queue = [
      { id: 3, held_by: null, waiting_for: [] },
      { id: 1, held_by: 3, waiting_for: [] },
    ];
    const all = ordered([job(1), job(2), job(3)], queue);
    expect(all.map(({ id, heldBy }) => [id, heldBy])).toEqual([
      [3, null],
      [1, 3],
      [2, null],
    ]);
  });

  it("keep their places while somebody points at them", () => {
    expect(inOrder([job(9), job(2), job(1)], [1, 3, 2]).map(({ id }) => id)).toEqual([1, 2, 9]);
  });

  it("wait for the job that holds them, and not while they are stalled or paused", () => {
    const held = { ...job(2, { condition: "held" }), heldBy: 1 };
    expect(waitsFor(held)).toEqual([1]);
    expect(waitsFor({ ...held, condition: "stalled" })).toEqual([]);
    expect(waitsFor({ ...held, condition: "paused" })).toEqual([]);
    expect(waitsFor({ ...held, condition: "waiting", heldBy: null, waiting_for: [7] })).toEqual([7]);
  });

  it("are linked where a sentence names them", () => {
    expect(pieces("waits: job 12 is earlier")).toEqual([
      { text: "Waits: ", job: null },
      { text: "job 12", job: 12 },
      { text: " is earlier.", job: null },
    ]);
  });
});

describe("the ledger", () => {
  it("is the sum over all users", () => {
    const checkpoints = { energy: null, kept_cpu_s: 1, checkpoints: 2, checkpoint_bytes: 10, checkpoint_held_s: 0 };
    const line = { subject: "eve", name: "", jobs: 1, wall_s: 9, lost_cpu_s: 0, replicated_cpu_s: 1, ...checkpoints };
    const sums = summed([
      { ...line, tasks: 2, attempts: 3, useful_cpu_s: 5, wasted_cpu_s: 1 },
      { ...line, tasks: 1, attempts: 1, useful_cpu_s: 2, wasted_cpu_s: 0 },
    ]);
    expect(sums).toEqual({
      tasks: 3,
      attempts: 4,
      useful_cpu_s: 7,
      replicated_cpu_s: 2,
      wasted_cpu_s: 1,
      lost_cpu_s: 0,
      kept_cpu_s: 2,
    });
  });
});

describe("energy", () => {
  const line = {
    ...{ subject: "eve", name: "", jobs: 1, wall_s: 9, tasks: 1, attempts: 1, kept_cpu_s: 0, checkpoints: 0 },
    ...{ useful_cpu_s: 1, lost_cpu_s: 0, replicated_cpu_s: 0, wasted_cpu_s: 0 },
    ...{ checkpoint_bytes: 0, checkpoint_held_s: 0, energy: null },
  };
  const report = { since: 0, until: 1, lines: [line], co2_grams_per_kwh: null, energy: null };

  it("is shown in sum, with its sources", () => {
    const all = { useful_kwh: 1.25, wasted_kwh: 0.05, by_source: { package: 1.1, gpu: 0.2 } };
    expect(energyWords({ ...report, energy: all, co2_grams_per_kwh: 400 })).toBe(
      "Energy: 1.25 kWh useful, 50 Wh wasted, 520 g of CO2 (processor package only, GPUs).",
    );
  });

  it("is not shown where nothing is measured or declared", () => {
    expect(energyWords(report)).toBe("");
  });
});

describe("outputs", () => {
  it("are shown by their ending, and never taken for more", () => {
    expect([
      kindOf("a/b.PNG", 10),
      kindOf("x.csv", 1e9),
      kindOf("x.png", 1e9),
      kindOf("page.html", 5),
      kindOf("core", 5),
    ]).toEqual(["picture", "text", "other", "text", "other"]);
  });

  it("have paths that stay paths", () => {
    expect(encodedPath("plots/50 %/#1.png")).toBe("plots/50%20%25/%231.png");
  });
});

describe("requests", () => {
  it("leave out what was not given", () => {
    expect(url("/jobs", { state: null, cursor: undefined, limit: 5, q: "a b" })).toBe("/api/v1/jobs?limit=5&q=a+b");
  });
});

describe("words of a shell", () => {
  it("are told from those of a program", () => {
    const first = (line: string) => shellWord(wordsOf(line));
    expect(["cat a | wc", "run > out.txt", "make 2>&1", "a && b", "echo $HOME", "cd x; ls"].map(first)).toEqual([
      "|",
      ">",
      "2>&1",
      "&&",
      "$HOME",
      "x;",
    ]);
    expect(["sh -c 'cat a | wc'", "awk '$1 > 2'", "run --range a<b {i}", "test 3"].map(first)).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
  });
});

describe("curves", () => {
  it("break where nothing was known", () => {
    expect(withGaps([0, 60, 600], [[1, 2, 3]], 60)).toEqual([
      [0, 60, 120, 600],
      [1, 2, null, 3],
    ]);
  });
});
