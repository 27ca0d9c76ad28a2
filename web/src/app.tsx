/** The page as a whole: its frame, and what stands in it. */
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { GuaranteePage } from "./guarantee/GuaranteePage";
import { JobPage } from "./jobs/JobPage";
import { JobsPage } from "./jobs/JobsPage";
import { TaskPage } from "./tasks/TaskPage";
import { MasterPage } from "./master/MasterPage";
import { OverviewPage } from "./overview/OverviewPage";
import { Link, match, path } from "./router";
import { caller, trouble } from "./session/session";
import { SignIn } from "./session/SignIn";
import { Frame } from "./shell/Frame";
import { SubmitPage } from "./submit/SubmitPage";
import { TimelinePage } from "./timeline/TimelinePage";
import { ConfirmDialog } from "./ui/Confirm";
import { Empty, Loading, ProblemNote } from "./ui/states";
import { Toast } from "./ui/toast";
import { WorkerPage } from "./workers/WorkerPage";
import { WorkersPage } from "./workers/WorkersPage";

type Found = Record<string, string>;
type Page = [pattern: string, title: (found: Found) => string, page: (found: Found) => JSX.Element];

const PAGES: Page[] = [
  ["/", () => "Overview", () => <OverviewPage />],
  ["/timeline", () => "Timeline", () => <TimelinePage />],
  ["/jobs", () => "Jobs", () => <JobsPage />],
  ["/jobs/:job", ({ job }) => `Job ${job}`, ({ job }) => <JobPage key={job} job={Number(job)} />],
  [
    "/jobs/:job/tasks/:task",
    ({ job, task }) => `Task ${job}.${task}`,
    ({ job, task }) => <TaskPage key={`${job}.${task}`} job={Number(job)} task={Number(task)} />,
  ],
  ["/workers", () => "Workers", () => <WorkersPage />],
  ["/workers/:worker", ({ worker }) => worker!, ({ worker }) => <WorkerPage key={worker} worker={worker!} />],
  ["/guarantee", () => "Guarantee", () => <GuaranteePage />],
  ["/master", () => "Master", () => <MasterPage />],
  ["/submit", () => "Submit", () => <SubmitPage />],
];

export function App() {
  if (caller.value === null) return <SignIn />;
  if (caller.value === undefined) return <Waiting />;
  return (
    <>
      <Frame>
        <Current />
      </Frame>
      <ConfirmDialog />
      <Toast />
    </>
  );
}

function Current() {
  const [title, page] = find(path.value);
  useEffect(() => {
    document.title = `${title} – Loopline`;
  }, [title]);
  return page;
}

function find(given: string): [string, JSX.Element] {
  for (const [pattern, title, page] of PAGES) {
    const found = match(pattern, given);
    if (found) return [title(found), page(found)];
  }
  return ["Not here", <NotHere />];
}

function NotHere() {
  return (
    <Empty>
      <h1>There is no such page</h1>
      <p>
        <Link to="/">To the overview</Link>
      </p>
    </Empty>
  );
}

function Waiting() {
  return (
    <main class="door">{trouble.value ? <ProblemNote problem={trouble.value} /> : <Loading what="the grid" />}</main>
  );
}
