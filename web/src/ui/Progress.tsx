import type { Counts } from "../api/types";
import { count } from "../text/human";
import { shares } from "./shares";

/** How far a job is: a strip of its tasks by state, and the number that succeeded, of all. */
export function Progress({ tasks, total }: { tasks: Counts; total: number }) {
  const parts = shares(tasks);
  const said = parts.map(([share, number]) => `${count(number)} ${share}`);
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
        {count(tasks.succeeded ?? 0)} of {count(total)}
        {!!tasks.failed && <span class="bad">, {count(tasks.failed)} failed</span>}
        {!!tasks.cancelled && `, ${count(tasks.cancelled)} cancelled`}
      </span>
    </div>
  );
}
