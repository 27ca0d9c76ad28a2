import { cpuTime, percent, plural } from "../text/human";
import { Button } from "../ui/Button";
import type { Sums } from "./scene/selection";

/** What lies in the selection. */
export function SumsNote({ sums, onGone }: { sums: Sums; onGone: () => void }) {
  return (
    <p class="sums" role="status">
      <b>{plural(sums.attempts, "attempt")}</b> of {plural(sums.tasks, "task")} of {plural(sums.jobs, "job")} on{" "}
      {plural(sums.workers, "worker")}: <b>{cpuTime(sums.slot_s)}</b> of slots, {percent(sums.share, 1)} of what there
      was; {percent(sums.useful_s, sums.slot_s)} of it for results
      {sums.frozen_s > 0 && `, ${cpuTime(sums.frozen_s)} frozen for owners`}.{" "}
      <Button kind="quiet" onClick={onGone}>
        Select nothing
      </Button>
    </p>
  );
}
