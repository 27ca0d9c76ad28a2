import type { Counts } from "../api/types";
import { count } from "../text/human";
import { shares } from "./shares";

/** How far a job is: a strip of its tasks by state, and the same in words. */
export function Progress({ tasks, total }: { tasks: Counts; total: number }) {
  const parts = shares(tasks);
  const said = parts.map(([share, number]) => `${count(number)} ${share}`);
  const done = (tasks.succeeded ?? 0) + (tasks.failed ?? 0) + (tasks.cancelled ?? 0);
  let place = 0;
  return (
    <div class="progress">
      <svg
        class="strip"
        viewBox={`0 0 ${total} 1`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${said.join(", ") || "nothing started"} of ${count(total)} tasks`}
      >
        {parts.map(([share, width]) => {
          place += width;
          return <rect key={share} class={share} x={place - width} y="0" width={width} height="1" />;
        })}
      </svg>
      <span class="number" title={said.join(", ")}>
        {count(done)}/{count(total)}
      </span>
    </div>
  );
}
