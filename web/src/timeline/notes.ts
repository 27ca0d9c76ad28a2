/** Notes on the chart's workers: slots, disconnected, in use by the owner. */
import { useMemo } from "preact/hooks";
import { useWorkers } from "../workers/workers";
import type { WorkerNote } from "./scene/scene";

export function useNotes(): ReadonlyMap<string, WorkerNote> {
  const { data } = useWorkers();
  const key = data
    ?.map((worker) => `${worker.name} ${worker.facts.slots} ${worker.connected} ${worker.load?.in_use}`)
    .join();
  return useMemo(() => {
    const notes = new Map<string, WorkerNote>();
    for (const { name, facts, connected, load } of data ?? []) {
      notes.set(name, { slots: facts.slots, isAway: !connected, isInUse: load?.in_use ?? false });
    }
    return notes;
  }, [key]);
}
