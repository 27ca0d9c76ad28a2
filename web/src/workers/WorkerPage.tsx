import { get } from "../api/client";
import type { Explanation, Load, WorkerView } from "../api/types";
import { now } from "../live/clock";
import { Explained } from "../jobs/Explained";
import { anything, thisWorker, useResource } from "../live/resource";
import { go, Link } from "../router";
import { Gantt } from "../timeline/Gantt";
import { ago, amount, decimal, delay, duration, moment, plural } from "../text/human";
import { Chip } from "../ui/Chip";
import { Facts } from "../ui/Facts";
import { Section } from "../ui/Section";
import { Empty, Shown } from "../ui/states";
import { Drain, Forget } from "./Drain";
import { SpareCpuSection } from "./SpareCpuSection";
import { usedWord, loadOf, stateOf } from "./workers";
import { Latency } from "./WorkersTable";

const SPAN_S = 3600;
const GANTT_PX = 260;

export function WorkerPage({ worker: name }: { worker: string }) {
  const detail = useResource(
    `workers/${name}`,
    (signal) => get<WorkerView>(`/workers/${name}`, { last_hour: true }, signal),
    thisWorker(name),
  );
  const why = useResource(
    `workers/${name}/explain`,
    (signal) => get<Explanation>(`/workers/${name}/explain`, {}, signal),
    anything,
  );
  return (
    <Shown of={detail} what={`worker ${name}`}>
      {(worker) => (
        <>
          <header class="title">
            <h1>{worker.name}</h1>
            <Chip state={stateOf(worker)} />
            {worker.drain_reason && <span class="faint">{worker.drain_reason}</span>}
            <span class="buttons end">
              <Drain worker={worker} onDone={detail.reload} />
              <Forget worker={worker} onDone={() => go("/workers")} />
            </span>
          </header>
          {why.data && <Explained explanation={why.data} />}
          <WorkerFacts worker={worker} />
          <Section title="The last hour" aside={<Link to="/timeline">with all other workers</Link>}>
            <Gantt filter={{ worker: name }} span={SPAN_S} maxHeight={GANTT_PX} />
          </Section>
          <SpareCpuSection title="Spare CPU" path={`/workers/${name}/samples`} />
          <Running worker={worker} />
        </>
      )}
    </Shown>
  );
}

function WorkerFacts({ worker }: { worker: WorkerView }) {
  const { facts } = worker;
  const load = loadOf(worker);
  return (
    <Facts
      of={[
        [
          "Slots in use",
          load
            ? `${worker.slots_used} of ${worker.slots} offered` +
              (worker.slots < facts.slots ? `, ${facts.slots} there` : "")
            : `${plural(worker.slots_used, "slot")} of ${facts.slots} may go on`,
        ],
        ["Spare CPU", load && `${decimal(load.spare_cpu ?? 0)} of ${facts.cpus} cores`],
        ["Memory available", load && `${amount(load.memory_available_bytes ?? 0)} of ${amount(facts.memory_bytes)}`],
        ["Disk free", load && amount(load.disk_free_bytes ?? 0)],
        ["Owner", load && (load.in_use ? "at the PC, or unknown" : "away")],
        [
          "Last input",
          load?.idle_s !== null && load?.idle_s !== undefined && `${ago(now.value - load.idle_s, now.value)}`,
        ],
        ["Yields within", load && <Latency worker={worker} />],
        ["Power", load && (load.on_battery ? "battery" : "mains")],
        ["CPU pressure", typeof load?.cpu_pressure === "number" && `${decimal(load.cpu_pressure)} %`],
        ["Speed", decimal(worker.speed ?? 1, 2)],
        ["Expected work", !!worker.queue_s && `about ${duration(worker.queue_s)}`],
        [
          "Last hour",
          worker.last_hour &&
            (worker.last_hour.share === null ? "" : `${usedWord(worker.last_hour)} of its offer used, `) +
              plural(worker.last_hour.tasks, "task"),
        ],
        ["Network", load && networkOf(load)],
        ["Asleep", worker.sleep?.since && `since ${moment(worker.sleep.since)}`],
        ["Waking", worker.sleep && (worker.sleep.obstacle || "the grid can wake it")],
        ["Quarantined", worker.quarantine && `until ${moment(worker.quarantine.until)}: ${worker.quarantine.reason}`],
        ["Half-open", worker.half_open && "back from quarantine, with one attempt at a time"],
        [
          "Mismatches",
          !!worker.mismatches && `${plural(worker.mismatches, "result")} contradicted by another worker`,
        ],
        [
          "Impossible figures",
          !!worker.overstated &&
            `${plural(worker.overstated, "report")} of times, memory, speed or cores, cut to what is possible`,
        ],
        ["Processor", facts.model],
        ["System", `${facts.os} ${facts.arch}`],
        ["Labels", (facts.labels ?? []).join(", ") || null],
        ["Resources", resourcesOf(worker)],
        ...gpusOf(worker),
        ["Agent", `${facts.agent}, Python ${facts.python}`],
        ["Joined", moment(worker.joined_at)],
        ["Last seen", ago(worker.reported_at, now.value)],
        ["Lease until", moment(worker.lease_until)],
      ]}
    />
  );
}

function resourcesOf({ facts, resources_used: used }: WorkerView): string | null {
  const each = (facts.resources ?? []).map(({ name, units }) => `${used?.[name] ?? 0} of ${units} ${name} in use`);
  return each.join(", ") || null;
}

/** A line for each GPU: what it is, and which task has it. */
function gpusOf({ facts, load, gpus_used: used }: WorkerView): [string, string][] {
  const gpus = (facts.resources ?? []).flatMap((one) => one.gpus ?? []);
  return gpus.map(({ id, index, model, memory_bytes: memory }) => {
    const tasks = (used?.[id] ?? []).map(({ attempt, user }) => `task ${attempt} of ${user}`);
    const withheld = load?.withheld_gpus?.find((one) => one.id === id);
    const state = tasks.join(", ") || (withheld ? withheld.reason : "free");
    return [`GPU ${index ?? 0}`, `${model}${memory ? `, ${amount(memory)}` : ""}: ${state}`];
  });
}

/** Delay there and back, and what files have come and gone at. */
function networkOf({ delay_s, throughput_bytes_s }: Load): string | null {
  const parts = [
    typeof delay_s === "number" && `${delay(delay_s)} there and back`,
    typeof throughput_bytes_s === "number" && `${amount(throughput_bytes_s)}/s`,
  ];
  return parts.filter(Boolean).join(", ") || null;
}

function Running({ worker }: { worker: WorkerView }) {
  return (
    <Section title="On its slots">
      {worker.running.length || worker.waiting?.length ? (
        <ul class="inline">
          {worker.running.map((attempt) => (
            <AttemptItem key={attempt} attempt={attempt} />
          ))}
          {worker.waiting?.map((attempt) => (
            <AttemptItem key={attempt} attempt={attempt} note="waits for a slot" />
          ))}
        </ul>
      ) : (
        <Empty>Nothing.</Empty>
      )}
    </Section>
  );
}

function AttemptItem({ attempt, note }: { attempt: string; note?: string }) {
  const [job, task] = attempt.split(".");
  return (
    <li>
      <Link to={`/jobs/${job}/tasks/${task}`} class="number">
        {attempt}
      </Link>
      {note && <span class="faint"> {note}</span>}
    </li>
  );
}
