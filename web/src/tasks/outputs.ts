/** Files that tasks leave: which of them can be shown in place, and how. */

export type Kind = "picture" | "text" | "other";

/** Shown as pictures, in which nothing of them can run; the type is ours, not the sender's. */
const PICTURES: Record<string, string> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  svg: "image/svg+xml",
};
const TEXTS = [
  "txt",
  "csv",
  "tsv",
  "json",
  "ndjson",
  "jsonl",
  "log",
  "md",
  "yaml",
  "yml",
  "toml",
  "xml",
  "dat",
  "out",
  "py",
  "html",
];

const PICTURE_LIMIT_BYTES = 8_000_000;
export const TEXT_LIMIT_BYTES = 64_000;

export function kindOf(path: string, sizeBytes: number): Kind {
  const ending = endingOf(path);
  if (ending in PICTURES) return sizeBytes <= PICTURE_LIMIT_BYTES ? "picture" : "other";
  return TEXTS.includes(ending) ? "text" : "other";
}

export const pictureType = (path: string): string => PICTURES[endingOf(path)] ?? "application/octet-stream";

export const encodedPath = (path: string): string => path.split("/").map(encodeURIComponent).join("/");

function endingOf(path: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1);
  return name.slice(name.lastIndexOf(".") + 1).toLowerCase();
}
