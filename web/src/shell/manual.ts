/** Pages of the manual, which the master serves beside this page. */

/** The page of the manual about each view, by the first part of its path. */
export const PAGES: Record<string, string> = {
  "": "page",
  timeline: "page",
  jobs: "troubleshooting",
  workers: "knowing",
  guarantee: "guarantee",
  master: "operating",
  submit: "sweeps",
};

export const manual = (page: string): string => `/manual/${page}.html`;

/** The page of the manual about the view at this path. */
export function manualOf(path: string): string {
  const [, first = ""] = path.split("/");
  const isTask = first === "jobs" && path.includes("/tasks/");
  return manual(isTask ? "failures" : (PAGES[first] ?? "index"));
}
