/** The form as it was left, in this tab alone: a reload, or a look at another page, loses nothing of it. */
import type { Draft } from "./draft";
import type { InputFile } from "./FilesField";

const KEY = "draft";

export interface Kept {
  draft: Draft;
  /** Those that the master has. */
  files: InputFile[];
  /** By which the master knows the job, should it be sent twice. */
  key: string;
  /** Who filled it in. */
  by: string;
}

/** What this user left; null: nothing, or of another release, whose form had other fields. */
export function keptDraft(empty: Draft, user: string): Kept | null {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Kept | null;
    return kept?.by === user && fits(kept.draft, empty) && Array.isArray(kept.files) ? kept : null;
  } catch {
    return null;
  }
}

/** Keeps the form, or forgets it: it is empty, or was submitted. */
export function keepDraft(kept: Kept | null): void {
  try {
    if (kept) sessionStorage.setItem(KEY, JSON.stringify(withoutSecrets(kept)));
    else sessionStorage.removeItem(KEY);
  } catch {
    // the browser keeps nothing, or no more than it has
  }
}

/** Without secrets, and without files that the master does not have. */
const withoutSecrets = ({ draft, files, ...rest }: Kept): Kept => ({
  ...rest,
  draft: { ...draft, secrets: "" },
  files: files.filter((file) => file.hash),
});

/** Whether it has the same fields, of the same kinds. */
function fits(draft: Draft, empty: Draft): boolean {
  const kinds = (of: object): string =>
    JSON.stringify(Object.entries(of).map(([name, value]) => [name, typeof value]));
  return typeof draft === "object" && draft !== null && kinds(draft) === kinds(empty);
}
