import { manual } from "../shell/manual";
import { Empty } from "../ui/states";

/** How a grid without workers gets its first one: jobs wait until then. */
export function NoWorkers() {
  return (
    <Empty>
      <p>No computer has joined yet: jobs wait until one does.</p>
      <p>
        To try it on this computer: <code>loopline worker --dedicated</code>
      </p>
      <p>
        For each other computer: <code>loopline token join</code> prints a line; run{" "}
        <code>loopline join LINE --service</code> there.
      </p>
      <p>
        <a href={manual("installing")}>How to put a worker on a computer</a>
      </p>
    </Empty>
  );
}
