/** Notes on the chart's workers: slots, disconnected, in use by the owner. */
import { useMemo } from "preact/hooks";
import { loadOf, useWorkers } from "../workers/workers";
import type { WorkerNote } from "./scene/scene";

export function useNotes(): ReadonlyMap<string, WorkerNote> {
  const { data } = useWorkers();
  const key = data
    ?.map((worker) => `${worker.name} ${worker.facts.slots} ${worker.connected} ${loadOf(worker)?.in_use}`)
    .join();
  return useMemo(() => {
    const notes = new Map<string, WorkerNote>();
    for (const worker of data ?? []) {
      const isInUse = loadOf(worker)?.in_use ?? false;
      notes.set(worker.name, { slots: worker.facts.slots, isAway: !worker.connected, isInUse });
    }
    return notes;
  }, [key]);
}
