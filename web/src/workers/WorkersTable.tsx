import type { LastHour, WorkerView } from "../api/types";
import { now } from "../live/clock";
import { Link } from "../router";
import { isAdmin } from "../session/session";
import { ago, decimal, delay, plural } from "../text/human";
import { Chip } from "../ui/Chip";
import { Drain } from "./Drain";
import { Meter } from "./Meter";
import { keptWord, standing, useLastHours } from "./workers";

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
              title="How soon tasks stood still after the owner’s input: measured, half of the times and 99 in 100"
            >
              Yields within
            </th>
            <th
              scope="col"
              class="right"
              title="In the last hour: computation of tasks that ended here with their results, of what its speed and slots promise"
            >
              Delivered
            </th>
            <th scope="col">Last report</th>
            <th scope="col">Holds back</th>
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
        <span class="standing">
          <Chip state={standing(worker)} />
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
      <td data-name="Last report" class="number">
        {ago(worker.reported_at, now.value)}
      </td>
      <td data-name="Holds back" class="reason">
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

/** How soon its owner had the computer back. */
export function Latency({ worker }: { worker: WorkerView }) {
  const yielded = worker.load?.yielded;
  if (!yielded?.count) return <span class="faint">–</span>;
  return (
    <span title={`measured ${yielded.count} times`}>
      {delay(yielded.p50_s ?? 0)} <span class="faint">/ {delay(yielded.p99_s ?? 0)}</span>
    </span>
  );
}
