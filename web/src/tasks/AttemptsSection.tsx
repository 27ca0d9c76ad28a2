import type { AttemptView } from "../api/types";
import { now } from "../live/clock";
import { Link } from "../router";
import { amount, clock, duration, percent } from "../text/human";
import { Cards, type Column } from "../lists/Cards";
import { Chip } from "../ui/Chip";
import { Section } from "../ui/Section";
import { Empty } from "../ui/states";
import { ranksOf, tookOfAttempt } from "./runs";

/** Attempts of a task: worker, times, and the accepted result. */
export function AttemptsSection({ attempts }: { attempts: AttemptView[] }) {
  return (
    <Section title="Attempts">
      {attempts.length ? (
        <Cards rows={attempts} keyOf={({ id }) => id} columns={columnsOf(attempts)} />
      ) : (
        <Empty>No attempt yet.</Empty>
      )}
    </Section>
  );
}

/** Members of a gang have a rank each. */
const columnsOf = (attempts: AttemptView[]): Column<AttemptView>[] => {
  const [id, ...others] = COLUMNS;
  if (ranksOf(attempts).length) return [id!, RANK, ...others];
  return attempts.some(({ resumed }) => resumed) ? [...COLUMNS.slice(0, -1), RESUMED, ...COLUMNS.slice(-1)] : COLUMNS;
};

const RANK: Column<AttemptView> = { name: "Rank", class: "right number", show: ({ rank }) => rank ?? "–" };
const RESUMED: Column<AttemptView> = {
  name: "Resumed after",
  show: ({ resumed }) =>
    resumed ? `${progressOf(resumed)}${duration(resumed.wall_s)}, from ${resumed.worker}` : "–",
};

/** The progress that the task told before it was stopped. */
function progressOf({ progress }: NonNullable<AttemptView["resumed"]>): string {
  return typeof progress === "number" ? `${percent(progress, 1)}, ` : "";
}

const COLUMNS: Column<AttemptView>[] = [
  { name: "Attempt", class: "number", show: (attempt) => attempt.id },
  { name: "State", show: (attempt) => <AttemptState attempt={attempt} /> },
  { name: "Worker", show: ({ worker }) => <Link to={`/workers/${worker}`}>{worker}</Link> },
  { name: "Started", class: "number", show: (attempt) => clock(attempt.started_at ?? attempt.dispatched_at) },
  { name: "Took", class: "right number", show: (attempt) => <Took attempt={attempt} /> },
  { name: "CPU", class: "right number", show: ({ cpu_s }) => (cpu_s ? duration(cpu_s) : "–") },
  {
    name: "Memory",
    class: "right number",
    show: ({ peak_memory_bytes }) => (peak_memory_bytes ? amount(peak_memory_bytes) : "–"),
  },
  { name: "Exit", class: "right number", show: (attempt) => attempt.exit_code ?? "–" },
  { name: "Reason", class: "reason", show: (attempt) => attempt.reason },
];

/** The end of a lost attempt is unknown. */
function Took({ attempt }: { attempt: AttemptView }) {
  if (attempt.state === "lost" && attempt.ended_at === null)
    return (
      <span class="faint" title="Its worker is disconnected, and may come back with it">
        not known
      </span>
    );
  return <>{tookOfAttempt(attempt, now.value)}</>;
}

function AttemptState({ attempt }: { attempt: AttemptView }) {
  return (
    <span class="state-cell">
      <Chip state={attempt.state} />
      {attempt.state === "prefetched" && <span class="faint">waiting for a slot</span>}
      {attempt.replica && <span class="faint">replica</span>}
      {attempt.accepted && <span class="faint">its result is accepted</span>}
    </span>
  );
}
