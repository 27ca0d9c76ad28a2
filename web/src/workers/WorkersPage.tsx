import type { WorkerView } from "../api/types";
import { useWord } from "../router";
import { amount, decimal, plural } from "../text/human";
import { SpareCpuSection } from "./SpareCpuSection";
import { SearchField } from "../lists/SearchField";
import { Section } from "../ui/Section";
import { Empty, Shown } from "../ui/states";
import { loadOf, totals, useWorkers } from "./workers";
import { NoWorkers } from "./NoWorkers";
import { NetworkSection } from "./NetworkSection";
import { WorkersTable } from "./WorkersTable";
import { Tally } from "../ui/Tally";

export function WorkersPage() {
  const workers = useWorkers();
  return (
    <>
      <h1>Workers</h1>
      <Shown of={workers} what="workers">
        {(all) => (all.length ? <Workers all={all} onDone={workers.reload} /> : <NoWorkers />)}
      </Shown>
    </>
  );
}

function Workers({ all, onDone }: { all: WorkerView[]; onDone: () => void }) {
  const search = useWord("named")[0] ?? "";
  const found = all.filter((worker) => matches(worker, search));
  return (
    <>
      <WorkerTallies all={all} />
      <SpareCpuSection title="Spare CPU and its use" path="/samples" />
      <Section
        title="Machines"
        aside={<SearchField name="named" label="Find a worker" placeholder="Name, label or model" />}
      >
        {found.length ? (
          <WorkersTable workers={found} onDone={onDone} />
        ) : (
          <Empty>No worker matches “{search}”.</Empty>
        )}
      </Section>
      <NetworkSection />
    </>
  );
}

function WorkerTallies({ all }: { all: WorkerView[] }) {
  const sum = totals(all);
  const memory = all.reduce((total, worker) => total + (loadOf(worker)?.memory_available_bytes ?? 0), 0);
  return (
    <dl class="tallies">
      <Tally label="Connected" value={sum.connected} note={`of ${sum.known} known`} />
      <Tally label="Slots in use" value={sum.used} note={`of ${sum.slots} offered`} />
      <Tally label="Spare CPU" value={decimal(sum.spareCpu)} note="unused cores" />
      <Tally
        label="In use by owners"
        value={sum.inUse}
        note={plural(sum.connected - sum.inUse, "machine") + " free"}
      />
      <Tally label="Memory available" value={amount(memory)} />
    </dl>
  );
}

function matches({ name, facts }: WorkerView, search: string): boolean {
  const text = [name, facts.model, facts.os, ...(facts.labels ?? [])].join(" ").toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
