import { post } from "../api/client";
import type { LastHour, WorkerView } from "../api/types";
import { now } from "../live/clock";
import { Link } from "../router";
import { isAdmin } from "../session/session";
import { ago, decimal, delay, plural } from "../text/human";
import { BulkBar, type Deed } from "../lists/BulkBar";
import { Cards, type Column } from "../lists/Cards";
import { Chip } from "../ui/Chip";
import { usePicks } from "../lists/picks";
import { sorted } from "../lists/sorted";
import { useSorting } from "../lists/sorting";
import { Drain } from "./Drain";
import { Meter } from "./Meter";
import { keptWord, stateOf, useLastHours } from "./workers";

const DEEDS: Deed<WorkerView>[] = [
  { name: "Drain", done: "drained", fits: (one) => !one.draining, run: (one) => post(`/workers/${one.name}/drain`) },
  {
    name: "Undrain",
    done: "undrained",
    fits: (one) => !!one.draining,
    run: (one) => post(`/workers/${one.name}/undrain`),
  },
];

const nameOf = ({ name }: WorkerView): string => name;

export function WorkersTable({ workers, onDone }: { workers: WorkerView[]; onDone: () => void }) {
  const hours = useLastHours();
  const picks = usePicks<string>();
  const sorting = useSorting("sort");
  const columns = columnsOf((worker) => hours?.get(worker.name));
  const steering = isAdmin.value
    ? { picks, actions: (worker: WorkerView) => <Drain worker={worker} onDone={onDone} /> }
    : {};
  return (
    <>
      <BulkBar rows={workers} keyOf={nameOf} picks={picks} noun="worker" deeds={DEEDS} onDone={onDone} />
      <Cards
        rows={sorted(workers, columns, sorting)}
        keyOf={nameOf}
        columns={columns}
        sorting={sorting}
        rowClass={({ connected }) => (connected ? "" : "gone")}
        {...steering}
      />
    </>
  );
}

type HourOf = (worker: WorkerView) => LastHour | undefined;

const columnsOf = (hourOf: HourOf): Column<WorkerView>[] => [
  { name: "Worker", order: nameOf, show: ({ name }) => <Link to={`/workers/${name}`}>{name}</Link> },
  { name: "State", order: stateOf, show: (worker) => <State worker={worker} /> },
  { name: "Slots", order: ({ slots_used }) => slots_used, show: (worker) => <Slots worker={worker} /> },
  {
    name: "Spare CPU",
    order: ({ load }) => load?.spare_cpu,
    show: ({ load, facts }) =>
      load ? <Meter value={load.spare_cpu ?? 0} most={facts.cpus} whole={facts.cpus} unit="cores" /> : "–",
  },
  {
    name: "Speed",
    class: "right number",
    order: ({ speed }) => speed ?? 1,
    show: ({ speed }) => decimal(speed ?? 1, 2),
  },
  {
    name: "Yields within",
    class: "right number",
    about: "Delay from the owner’s input to frozen tasks, as measured: median and 99th percentile",
    order: ({ load }) => (load?.yielded?.count ? load.yielded.p99_s : null),
    show: (worker) => <Latency worker={worker} />,
  },
  {
    name: "Delivered",
    class: "right number",
    about: "In the last hour: work of tasks with accepted results, as a share of what its speed and slots promise",
    order: (worker) => sharePromised(hourOf(worker)),
    show: (worker) => keptWord(hourOf(worker)),
  },
  {
    name: "Last seen",
    class: "number",
    order: ({ reported_at }) => reported_at,
    show: ({ reported_at }) => ago(reported_at, now.value),
  },
  { name: "Withheld", class: "reason", show: ({ load }) => load?.withheld },
];

const sharePromised = (hour: LastHour | undefined): number | null =>
  hour?.promised ? hour.delivered / hour.promised : null;

function State({ worker }: { worker: WorkerView }) {
  return (
    <span class="state-cell">
      <Chip state={stateOf(worker)} />
      {!!worker.mismatches && <Chip state="mismatch">{plural(worker.mismatches, "result")} contradicted</Chip>}
    </span>
  );
}

function Slots({ worker }: { worker: WorkerView }) {
  return (
    <>
      <Meter value={worker.slots_used} most={worker.slots} whole={worker.facts.slots} unit="slots" />
      {!!worker.waiting?.length && <span class="faint"> {worker.waiting.length} wait</span>}
    </>
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
