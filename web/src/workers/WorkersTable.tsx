import type { LastHour, WorkerView } from "../api/types";
import { now } from "../live/clock";
import { Link } from "../router";
import { isAdmin } from "../session/session";
import { ago, decimal, delay, plural, shortMoment } from "../text/human";
import { BulkBar } from "../lists/BulkBar";
import { Cards, type Column } from "../lists/Cards";
import { Chip } from "../ui/Chip";
import { usePicks } from "../lists/picks";
import { sorted } from "../lists/sorted";
import { useSorting } from "../lists/sorting";
import { BULK_ACTIONS, Drain, Forget } from "./Drain";
import { Meter } from "./Meter";
import { Sparkline } from "./Sparkline";
import { usedWord, loadOf, stateOf, type Trend, useLastHours, useTrends } from "./workers";

const nameOf = ({ name }: WorkerView): string => name;
const BY_NAME = { column: "Worker", isDown: false };

export function WorkersTable({ workers, onDone }: { workers: WorkerView[]; onDone: () => void }) {
  const hours = useLastHours();
  const trends = useTrends();
  const picks = usePicks<string>();
  const sorting = useSorting("sort");
  const columns = columnsOf(
    ({ name }) => hours?.get(name),
    ({ name }) => trends?.get(name),
  );
  const steering = isAdmin.value
    ? {
        picks,
        actions: (worker: WorkerView) =>
          worker.connected ? <Drain {...{ worker, onDone }} /> : <Forget {...{ worker, onDone }} />,
      }
    : {};
  return (
    <>
      <BulkBar rows={workers} keyOf={nameOf} picks={picks} noun="worker" actions={BULK_ACTIONS} onDone={onDone} />
      <Cards
        rows={sorted(workers, columns, sorting.column ? sorting : BY_NAME)}
        keyOf={nameOf}
        columns={columns}
        sorting={sorting}
        rowClass={({ connected }) => (connected ? "" : "gone")}
        {...steering}
      />
    </>
  );
}

type Of<Known> = (worker: WorkerView) => Known | undefined;

const columnsOf = (hourOf: Of<LastHour>, trendOf: Of<Trend>): Column<WorkerView>[] => [
  { name: "Worker", order: nameOf, show: ({ name }) => <Link to={`/workers/${name}`}>{name}</Link> },
  { name: "State", order: stateOf, show: (worker) => <State worker={worker} /> },
  { name: "Slots", order: ({ slots_used }) => slots_used, show: (worker) => <Slots worker={worker} /> },
  { name: "Spare CPU", order: (worker) => loadOf(worker)?.spare_cpu, show: (worker) => <SpareCpu worker={worker} /> },
  {
    name: "CPU, last hour",
    about: "Of its cores: grey those that its owner did not use, blue those that tasks used",
    show: (worker) => <Sparkline trend={trendOf(worker)} cores={worker.facts.cpus} />,
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
    order: (worker) => yieldOf(worker)?.p99_s,
    show: (worker) => <Latency worker={worker} />,
  },
  {
    name: "Used",
    class: "right number",
    about:
      "In the last hour: work of accepted results, as a share of what its slots can do; little if there was little to do",
    order: (worker) => hourOf(worker)?.share,
    show: (worker) => usedWord(hourOf(worker)),
  },
  {
    name: "Last seen",
    class: "number",
    order: ({ reported_at }) => reported_at,
    show: ({ reported_at }) => ago(reported_at, now.value),
  },
  { name: "Withheld", class: "reason", show: (worker) => loadOf(worker)?.withheld },
];

function State({ worker }: { worker: WorkerView }) {
  return (
    <span class="state-cell">
      <Chip state={stateOf(worker)} />
      {stateOf(worker) === "asleep" && <span class="faint">since {shortMoment(worker.sleep?.since, now.value)}</span>}
      {worker.drain_reason && <span class="reason">{worker.drain_reason}</span>}
      {!!worker.mismatches && <Chip state="mismatch">{plural(worker.mismatches, "result")} contradicted</Chip>}
      {!!worker.overstated && (
        <Chip state="mismatch">{plural(worker.overstated, "report")} of impossible figures</Chip>
      )}
    </span>
  );
}

function SpareCpu({ worker }: { worker: WorkerView }) {
  const load = loadOf(worker);
  const { cpus } = worker.facts;
  return load ? <Meter value={load.spare_cpu ?? 0} most={cpus} whole={cpus} unit="cores" /> : <>–</>;
}

function Slots({ worker }: { worker: WorkerView }) {
  if (!loadOf(worker))
    return <span class="faint">{worker.slots_used ? `${plural(worker.slots_used, "slot")} may go on` : "–"}</span>;
  return (
    <>
      <Meter value={worker.slots_used} most={worker.slots} whole={worker.facts.slots} unit="slots" />
      {!!worker.waiting?.length && <span class="faint"> {worker.waiting.length} wait</span>}
    </>
  );
}

/** Its measured delays until the owner had the PC back; undefined: none was measured. */
const yieldOf = (worker: WorkerView) => {
  const yielded = loadOf(worker)?.yielded;
  return yielded?.count ? yielded : undefined;
};

/** Delay until the owner had the PC back. */
export function Latency({ worker }: { worker: WorkerView }) {
  const yielded = yieldOf(worker);
  if (!yielded) return <span class="faint">–</span>;
  return (
    <span title={`measured ${yielded.count} times`}>
      {delay(yielded.p50_s ?? 0)} <span class="faint">/ {delay(yielded.p99_s ?? 0)}</span>
    </span>
  );
}
