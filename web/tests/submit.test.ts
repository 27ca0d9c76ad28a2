import { describe, expect, it } from "vitest";
import type { JobSpec } from "../src/api/types";
import { draftOf, EMPTY, meaningOf, leftOut } from "../src/submit/draft";
import { filesOf, inputsOf } from "../src/submit/inputs";
import { bytes, seconds } from "../src/submit/measures";
import { taskAt, taskCount, unknownNames } from "../src/submit/sweep";
import { rowsOf } from "../src/submit/table";
import { lengthOf, scalarOf, valuesOf } from "../src/submit/values";
import { lineOf, wordsOf } from "../src/submit/words";

describe("values", () => {
  it("are a range with both ends, or a list", () => {
    expect(valuesOf("1..100:5")).toEqual({ range: [1, 100, 5] });
    expect(lengthOf(valuesOf("1..100:5"))).toBe(20);
    expect(lengthOf(valuesOf("5..1:-2"))).toBe(3);
    expect(valuesOf(`0.1, x ,"a, b",007`)).toEqual([0.1, "x", "a, b", "007"]);
  });

  it("say what was expected", () => {
    for (const wrong of ["", "1,,2", "1.5..2", "3..1", "1..2:0"]) expect(() => valuesOf(wrong), wrong).toThrow();
  });

  it("are numbers only where JSON reads one, exactly", () => {
    expect(["1", "-2.5", "1e3", "007", "nan", "1e999", "9007199254740993"].map(scalarOf)).toEqual([
      1,
      -2.5,
      1000,
      "007",
      "nan",
      "1e999",
      "9007199254740993",
    ]);
  });
});

describe("a sweep", () => {
  const grid = { lr: valuesOf("0.1,0.01"), seed: valuesOf("1..3") };

  it("has a task for each combination, the last parameter fastest", () => {
    expect(taskCount(grid)).toBe(6);
    expect(taskAt(["run", "{lr}", "{seed}"], grid, 4).command).toEqual(["run", "0.01", "1"]);
    expect(taskAt(["run"], grid, 6).parameters).toEqual({ lr: 0.01, seed: 3 });
  });

  it("has a task for each row of a table", () => {
    const rows = rowsOf('a,b\n1,"x, ""y"""\n\n2,z\r\n');
    expect(rows).toEqual([
      { a: 1, b: 'x, "y"' },
      { a: 2, b: "z" },
    ]);
    expect(taskAt(["{b}"], { rows }, 2).command).toEqual(["z"]);
  });

  it("leaves braces that name nothing, and says so", () => {
    expect(taskAt(["{no} ${HOME} {seed}"], grid, 1).command).toEqual(["{no} ${HOME} 1"]);
    expect(unknownNames(["{no}", "{seed}"], grid)).toEqual(["no"]);
  });

  it("is worked out without making all tasks", () => {
    const large = { a: valuesOf("1..100000"), b: valuesOf("1..1000") };
    expect(taskCount(large)).toBe(100_000_000);
    expect(taskAt(["{a}-{b}"], large, 100_000_000).command).toEqual(["100000-1000"]);
  });
});

describe("a command line", () => {
  it("is split as a shell does, and put together again", () => {
    const words = ["sh", "-c", `echo "it's {x}"; exit 0`, "a b", ""];
    expect(wordsOf(lineOf(words))).toEqual(words);
    expect(wordsOf(`a 'b c'  "d \\" e" f\\ g`)).toEqual(["a", "b c", 'd " e', "f g"]);
  });

  it("must close its quotes", () => {
    expect(() => wordsOf("echo 'oh")).toThrow("not closed");
  });
});

describe("measures", () => {
  it("are read as on the command line", () => {
    expect(["90", "1h30m", "10 m", "500ms"].map(seconds)).toEqual([90, 5400, 600, 0.5]);
    expect(["2GB", "512MiB", "1.5k"].map(bytes)).toEqual([2e9, 512 * 1024 ** 2, 1500]);
    for (const wrong of ["", "h", "3 parsecs", "1h 30"]) expect(() => seconds(wrong), wrong).toThrow();
  });
});

describe("the form", () => {
  it("means only what was filled in", () => {
    const { spec, mistakes } = meaningOf({
      ...EMPTY,
      command: "echo {i}",
      parameters: [{ name: "i", values: "1..3" }],
      size: "1m",
    });
    expect(mistakes).toEqual({});
    expect(spec).toEqual({ command: ["echo", "{i}"], parameters: { i: { range: [1, 3] } }, size: 60 });
  });

  it("names each mistake at its field", () => {
    const draft = {
      ...EMPTY,
      size: "big",
      memory: "much",
      environment: "X",
      parameters: [{ name: "1a", values: "1" }],
    };
    expect(Object.keys(meaningOf(draft).mistakes).sort()).toEqual([
      "command",
      "environment",
      "memory",
      "parameters",
      "size",
    ]);
  });

  it("brings a submitted job back as it was", () => {
    const draft = {
      ...EMPTY,
      name: "n",
      command: "run {a}",
      parameters: [
        { name: "a", values: "1..9:2" },
        { name: "b", values: '"x, y", 3' },
      ],
      size: "120s",
      os: "linux",
      memory: "1000",
      labels: "gpu",
      environment: "A=b=c",
      replicas: "unlimited",
      gpus: "0.5",
      needs: "matlab fpga=2",
      exclusive: true,
      network: true,
      outputs: "out *.{csv,log}, a",
      optionalOutputs: "*.tmp",
    };
    const outputs = ["out", "*.{csv,log}", "a", { path: "*.tmp", optional: true }];
    expect(meaningOf(draft).spec.outputs).toEqual(outputs);
    expect(meaningOf(draftOf(meaningOf(draft).spec)).spec).toEqual(meaningOf(draft).spec);
  });

  it("has GPUs, units and whole workers", () => {
    const draft = { ...EMPTY, command: "run", gpus: "2", needs: "matlab, fpga=2", exclusive: true };
    expect(meaningOf(draft).spec.requires).toEqual({ gpus: 2, needs: { matlab: 1, fpga: 2 }, exclusive: true });
    const wrong = meaningOf({ ...draft, gpus: "1.5", needs: "fpga=many" }).mistakes;
    expect([wrong.gpus, wrong.needs]).toEqual([
      "give a whole number of GPUs, or a part of one such as 0.5",
      "fpga: give a whole number from 1 on",
    ]);
    expect(meaningOf({ ...draft, needs: "=2" }).mistakes.needs).toContain("NAME=UNITS");
    expect(leftOut(meaningOf(draft).spec)).toEqual([]);
    expect(leftOut({ requires: { gpus: 1, gpu_model: "A4000" } } as JobSpec)).toEqual(["the kind of its GPUs"]);
  });

  it("takes files that were sent as inputs", () => {
    expect(meaningOf({ ...EMPTY, command: "x" }, { "a.csv": "sha256:00" }).spec.inputs).toEqual({
      "a.csv": "sha256:00",
    });
  });
});

describe("a job that was submitted before", () => {
  const spec = {
    command: ["./draw", "{n}"],
    inputs: { "data.csv": `sha256:${"a".repeat(64)}`, draw: { file: `sha256:${"b".repeat(64)}`, executable: true } },
  };

  it("has its files there already", () => {
    const files = filesOf(spec.inputs);
    expect(files.map(({ path, isExecutable }) => [path, isExecutable])).toEqual([
      ["data.csv", false],
      ["draw", true],
    ]);
    expect(meaningOf(draftOf(spec), inputsOf(files)).spec).toMatchObject(spec);
  });

  it("loses what the form has no field for, and says so", () => {
    const parameters = { file: `sha256:${"c".repeat(64)}`, count: 5 };
    const notify = { webhook: "https://a.example/", command: null, on: ["failed" as const] };
    const requires = { software: { packages: `sha256:${"d".repeat(64)}` } } as JobSpec["requires"];
    expect(
      leftOut({ ...spec, parameters, notify, requires, environment: { KEY: "(hidden)" }, quorum: null }),
    ).toEqual(["the value of KEY", "parameters from a file", "packages", "the events of its notification"]);
    expect(draftOf({ ...spec, parameters }).parameters).toEqual([]);
    expect(leftOut(spec)).toEqual([]);
  });

  it("brings packages or an image, secrets and a notification along", () => {
    const draft = { ...EMPTY, command: "run" };
    const { spec, packages, mistakes } = meaningOf({
      ...draft,
      packages: "# mine\n numpy==2.3.1 ",
      secrets: "KEY=a=b",
      notify: "https://a.example/hook",
    });
    expect(mistakes).toEqual({});
    expect(packages).toBe("# mine\nnumpy==2.3.1\n");
    expect([spec.secrets, spec.notify]).toEqual([{ KEY: "a=b" }, { webhook: "https://a.example/hook" }]);
    expect(meaningOf({ ...draft, image: "r-base:4.4.2", notify: "chat" }).spec).toMatchObject({
      requires: { software: { image: "r-base:4.4.2" } },
      notify: { command: "chat" },
    });
    const { image, notify } = draftOf(meaningOf({ ...draft, image: "r-base:4.4.2", notify: "chat" }).spec);
    expect([image, notify]).toEqual(["r-base:4.4.2", "chat"]);
  });

  it("asks again for secrets of an earlier job", () => {
    const draft = draftOf({ ...spec, environment: { A: "1", KEY: "(hidden)" } });
    expect([draft.environment, draft.secrets]).toEqual(["A=1", "KEY="]);
    expect(meaningOf(draft).mistakes.secrets).toContain("KEY");
  });

  it("says that links and empty folders are left out", () => {
    const inputs = { "a.txt": `sha256:${"a".repeat(64)}`, now: { link: "a.txt" }, plots: { folder: true as const } };
    expect(filesOf(inputs).map((file) => file.path)).toEqual(["a.txt"]);
    expect(leftOut({ inputs } as JobSpec)).toEqual(["links and empty folders among its files"]);
  });

  it("has the Python of packages, builds, and times", () => {
    const draft = { ...EMPTY, command: "run", packages: "numpy", python: "3.12", builds: true };
    const { spec, mistakes } = meaningOf({ ...draft, killAfter: "1m", retryDelay: "30s" });
    expect(mistakes).toEqual({});
    expect(spec.requires).toEqual({ software: { python: "3.12", builds: true } });
    expect([spec.kill_after_s, spec.retry_delay_s]).toEqual([60, 30]);
    expect(draftOf(spec)).toMatchObject({ python: "3.12", builds: true, killAfter: "60s", retryDelay: "30s" });
    expect(meaningOf({ ...draft, packages: "" }).mistakes.packages).toContain("name the packages");
    expect(meaningOf({ ...draft, python: "python3" }).mistakes.python).toContain("3.12");
  });

  it("refuses packages that workers cannot have, or that an image takes the place of", () => {
    const of = (packages: string, image = "") => meaningOf({ ...EMPTY, command: "run", packages, image }).mistakes;
    expect(of("-r other.txt").packages).toContain("-r other.txt");
    expect(of("# nothing").packages).toContain("name a package");
    expect(of("numpy", "r-base").packages).toContain("packages or an image");
  });
});
