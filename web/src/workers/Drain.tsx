import { post } from "../api/client";
import type { WorkerView } from "../api/types";
import { isAdmin } from "../session/session";
import { plural } from "../text/human";
import { Button } from "../ui/Button";
import { confirmed, told } from "../ui/Confirm";
import { attempt, say } from "../ui/toast";
import { type BulkAction } from "../lists/BulkBar";

const drain = ({ name }: WorkerView, reason: string): Promise<unknown> =>
  post(`/workers/${name}/drain${reason && `?reason=${encodeURIComponent(reason)}`}`);
const forget = ({ name }: WorkerView): Promise<unknown> => post(`/workers/${name}/forget`);
const undrain = ({ name }: WorkerView): Promise<unknown> => post(`/workers/${name}/undrain`);

/** Why, in the admin's words: users see it at each of the workers; null: it is not meant. */
const reasonOf = (subject: string): Promise<string | null> =>
  told(`Drain ${subject}?`, "Running tasks finish; no new ones start there.", "Drain", "Reason, which users see");

export const BULK_ACTIONS: BulkAction<WorkerView>[] = [
  {
    name: "Drain",
    done: "drained",
    fits: (one) => !one.draining,
    ask: (workers) => reasonOf(workers.length === 1 ? workers[0]!.name : plural(workers.length, "worker")),
    run: drain,
  },
  { name: "Undrain", done: "undrained", fits: (one) => one.draining, run: undrain },
  {
    name: "Forget",
    done: "forgotten",
    fits: (one) => !one.connected,
    isMeant: (workers) => isForgotten(workers.length === 1 ? workers[0]!.name : plural(workers.length, "worker")),
    run: forget,
  },
];

const isForgotten = (subject: string): Promise<boolean> =>
  confirmed(`Forget ${subject}?`, "A forgotten worker loses its token: it must join again to come back.", "Forget");

/** Forget a worker that is away and will not come back: for admins. */
export function Forget({ worker, onDone }: { worker: WorkerView; onDone: () => void }) {
  if (!isAdmin.value || worker.connected) return null;

  async function run(): Promise<void> {
    if (!(await isForgotten(worker.name))) return;
    if (await attempt(() => forget(worker))) say(`${worker.name} is forgotten.`);
    onDone();
  }

  return (
    <Button kind="danger" label={`forget ${worker.name}`} onClick={() => void run()}>
      Forget
    </Button>
  );
}

/** Let a worker finish what it has and give it nothing more, or take that back: for admins. */
export function Drain({ worker, onDone }: { worker: WorkerView; onDone: () => void }) {
  if (!isAdmin.value) return null;
  const verb = worker.draining ? "undrain" : "drain";

  async function steer(): Promise<void> {
    const reason = worker.draining ? "" : await reasonOf(worker.name);
    if (reason === null) return;
    const isDone = await attempt(() => (worker.draining ? undrain(worker) : drain(worker, reason)));
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
