import type { AttemptView } from "../api/types";
import { now } from "../live/clock";
import { Link } from "../router";
import { amount, between, clock, duration } from "../text/human";
import { Chip } from "../ui/Chip";
import { Section } from "../ui/Section";
import { Empty } from "../ui/states";

/** Attempts of a task: worker, times, and the accepted result. */
export function AttemptsSection({ attempts }: { attempts: AttemptView[] }) {
  return (
    <Section title="Attempts">
      {attempts.length ? <AttemptsTable attempts={attempts} /> : <Empty>No attempt yet.</Empty>}
    </Section>
  );
}

function AttemptsTable({ attempts }: { attempts: AttemptView[] }) {
  return (
    <div class="scroller">
      <table class="cards">
        <thead>
          <tr>
            <th scope="col">Attempt</th>
            <th scope="col">State</th>
            <th scope="col">Worker</th>
            <th scope="col">Started</th>
            <th scope="col" class="right">
              Took
            </th>
            <th scope="col" class="right">
              CPU
            </th>
            <th scope="col" class="right">
              Memory
            </th>
            <th scope="col" class="right">
              Exit
            </th>
            <th scope="col">Reason</th>
          </tr>
        </thead>
        <tbody>
          {attempts.map((attempt) => (
            <tr key={attempt.id}>
              <th scope="row" class="number">
                {attempt.id}
              </th>
              <td data-name="State">
                <AttemptState attempt={attempt} />
              </td>
              <td data-name="Worker">
                <Link to={`/workers/${attempt.worker}`}>{attempt.worker}</Link>
              </td>
              <td data-name="Started" class="number">
                {clock(attempt.started_at ?? attempt.dispatched_at)}
              </td>
              <td data-name="Took" class="right number">
                <Took attempt={attempt} />
              </td>
              <td data-name="CPU" class="right number">
                {attempt.cpu_s ? duration(attempt.cpu_s) : "–"}
              </td>
              <td data-name="Memory" class="right number">
                {attempt.peak_memory_bytes ? amount(attempt.peak_memory_bytes) : "–"}
              </td>
              <td data-name="Exit" class="right number">
                {attempt.exit_code ?? "–"}
              </td>
              <td data-name="Reason" class="reason">
                {attempt.reason}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The end of a lost attempt is unknown. */
function Took({ attempt }: { attempt: AttemptView }) {
  if (attempt.state === "lost" && attempt.ended_at === null)
    return (
      <span class="faint" title="Its worker is disconnected, and may come back with it">
        not known
      </span>
    );
  return <>{between(attempt.started_at, attempt.ended_at, now.value)}</>;
}

function AttemptState({ attempt }: { attempt: AttemptView }) {
  return (
    <span class="state-cell">
      <Chip state={attempt.state} />
      {attempt.waiting && <span class="faint">prefetched, waiting for a slot</span>}
      {attempt.frozen && <Chip state="frozen" />}
      {attempt.replica && <span class="faint">replica</span>}
      {attempt.accepted && <span class="faint">its result is accepted</span>}
    </span>
  );
}
