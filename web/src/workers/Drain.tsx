import { post } from "../api/client";
import type { WorkerView } from "../api/types";
import { isAdmin } from "../session/session";
import { Button } from "../ui/Button";
import { attempt, say } from "../ui/toast";

/** Let a worker finish what it has and give it nothing more, or take that back: for admins. */
export function Drain({ worker, onDone }: { worker: WorkerView; onDone: () => void }) {
  if (!isAdmin.value) return null;
  const verb = worker.draining ? "undrain" : "drain";

  async function steer(): Promise<void> {
    const isDone = await attempt(() => post(`/workers/${worker.name}/${verb}`));
    if (isDone)
      say(
        worker.draining
          ? `${worker.name} gets tasks again.`
          : `${worker.name} finishes its tasks and gets no new ones.`,
      );
    onDone();
  }

  return (
    <Button label={`${verb} ${worker.name}`} onClick={() => void steer()}>
      {worker.draining ? "Undrain" : "Drain"}
    </Button>
  );
}
