/** Files of a job, as the form holds them and as the job names them. */
import type { JobSpec } from "../api/types";
import type { InputFile } from "./FilesField";

export type Inputs = NonNullable<JobSpec["inputs"]>;

const PREFIX = "sha256:";

/** Those that are there. */
export function inputsOf(files: readonly InputFile[]): Inputs {
  const sent = files.filter((file) => file.hash);
  return Object.fromEntries(
    sent.map(({ path, hash, isExecutable }) => {
      const file = PREFIX + hash!;
      return [path, isExecutable ? { file, executable: true } : file];
    }),
  );
}

/** Those of a job that was submitted before: they need not be sent again. Links and empty folders are left out. */
export function filesOf(inputs: Inputs): InputFile[] {
  return Object.entries(inputs).flatMap(([path, given]) => {
    const { file, executable = false } = typeof given === "string" ? { file: given } : "file" in given ? given : {};
    if (!file) return [];
    return [{ path, size: null, share: 1, hash: file.slice(PREFIX.length), isExecutable: executable, problem: null }];
  });
}
