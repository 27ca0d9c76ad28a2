/** Legend of the chart's marks. */
export function Legend() {
  return (
    <ul class="legend" aria-label="Legend">
      <li>
        <Sample kind="won" /> result, or running (colour: job)
      </li>
      <li>
        <Sample kind="replica" /> replica
      </li>
      <li>
        <Sample kind="beaten" /> another was first
      </li>
      <li>
        <Sample kind="failed" /> failed
      </li>
      <li>
        <Sample kind="lost" /> worker lost
      </li>
      <li>
        <Sample kind="guessed" /> … until when: a guess
      </li>
      <li>
        <Sample kind="phases" /> inputs, program, results
      </li>
      <li>
        <Sample kind="frozen" /> frozen for the PC’s owner
      </li>
      <li>
        <Sample kind="planned" /> planned, framed: promised; ‹ moved forward
      </li>
      <li>
        <Sample kind="held" /> last task held
      </li>
    </ul>
  );
}

const HATCHED = ["beaten", "lost", "guessed", "planned"];

function Sample({ kind }: { kind: string }) {
  return (
    <svg class={`sample ${kind}`} viewBox="0 0 26 12" aria-hidden="true">
      <rect class="body" x="0.5" y="0.5" width="25" height="11" />
      {HATCHED.includes(kind) && <path class="mark" d="M-2 12L10 0M3 12L15 0M8 12L20 0M13 12L25 0M18 12L30 0" />}
      {kind === "failed" && <rect class="mark" x="22" y="0.5" width="3.5" height="11" />}
      {kind === "phases" && <rect class="mark" x="7" y="0.5" width="12" height="11" />}
      {kind === "phases" && <rect class="mark" x="19" y="5.5" width="7" height="1" />}
      {kind === "frozen" && <rect class="mark" x="0.5" y="4.5" width="25" height="3" />}
      {kind === "held" && <rect class="mark" x="6" y="4" width="19" height="4" />}
    </svg>
  );
}
