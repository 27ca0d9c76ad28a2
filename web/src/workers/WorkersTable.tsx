import type { LastHour, WorkerView } from "../api/types";
import { now } from "../live/clock";
import { Link } from "../router";
import { isAdmin } from "../session/session";
import { ago, decimal, delay, plural } from "../text/human";
import { Chip } from "../ui/Chip";
import { Drain } from "./Drain";
import { Meter } from "./Meter";
import { keptWord, stateOf, useLastHours } from "./workers";

export function WorkersTable({ workers, onDone }: { workers: WorkerView[]; onDone: () => void }) {
  const hours = useLastHours();
  return (
    <div class="scroller">
      <table class="cards">
        <thead>
          <tr>
            <th scope="col">Worker</th>
            <th scope="col">State</th>
            <th scope="col">Slots</th>
            <th scope="col">Spare CPU</th>
            <th scope="col" class="right">
              Speed
            </th>
            <th
              scope="col"
              class="right"
              title="Delay from the owner’s input to frozen tasks, as measured: median and 99th percentile"
            >
              Yields within
            </th>
            <th
              scope="col"
              class="right"
              title="In the last hour: work of tasks with accepted results, as a share of what its speed and slots promise"
            >
              Delivered
            </th>
            <th scope="col">Last seen</th>
            <th scope="col">Withheld</th>
            {isAdmin.value && (
              <th scope="col">
                <span class="unseen">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {workers.map((worker) => (
            <WorkerRow key={worker.name} worker={worker} hour={hours?.get(worker.name)} onDone={onDone} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  worker: WorkerView;
  hour: LastHour | undefined;
  onDone: () => void;
}

function WorkerRow({ worker, hour, onDone }: RowProps) {
  const { facts, load } = worker;
  return (
    <tr class={worker.connected ? "" : "gone"}>
      <th scope="row">
        <Link to={`/workers/${worker.name}`}>{worker.name}</Link>
      </th>
      <td data-name="State">
        <span class="state-cell">
          <Chip state={stateOf(worker)} />
          {!!worker.mismatches && <Chip state="mismatch">{plural(worker.mismatches, "result")} contradicted</Chip>}
        </span>
      </td>
      <td data-name="Slots">
        <Meter value={worker.slots_used} most={worker.slots} whole={facts.slots} unit="slots" />
        {!!worker.waiting?.length && <span class="faint"> {worker.waiting.length} wait</span>}
      </td>
      <td data-name="Spare CPU">
        {load ? <Meter value={load.spare_cpu ?? 0} most={facts.cpus} whole={facts.cpus} unit="cores" /> : "–"}
      </td>
      <td data-name="Speed" class="right number">
        {decimal(worker.speed ?? 1, 2)}
      </td>
      <td data-name="Yields within" class="right number">
        <Latency worker={worker} />
      </td>
      <td data-name="Delivered" class="right number">
        {keptWord(hour)}
      </td>
      <td data-name="Last seen" class="number">
        {ago(worker.reported_at, now.value)}
      </td>
      <td data-name="Withheld" class="reason">
        {load?.withheld}
      </td>
      {isAdmin.value && (
        <td class="actions">
          <Drain worker={worker} onDone={onDone} />
        </td>
      )}
    </tr>
  );
}

/** Delay until the owner had the PC back. */
export function Latency({ worker }: { worker: WorkerView }) {
  const yielded = worker.load?.yielded;
  if (!yielded?.count) return <span class="faint">–</span>;
  return (
    <span title={`measured ${yielded.count} times`}>
      {delay(yielded.p50_s ?? 0)} <span class="faint">/ {delay(yielded.p99_s ?? 0)}</span>
    </span>
  );
}
