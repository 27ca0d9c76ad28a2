import type { ComponentChildren } from "preact";

interface Props {
  label: string;
  value: ComponentChildren;
  note?: ComponentChildren;
  tone?: "good" | "bad" | undefined;
}

/** One figure that matters, large. */
export function Tally({ label, value, note, tone }: Props) {
  return (
    <div class="tally">
      <dt>{label}</dt>
      <dd>
        <span class={`figure ${tone ?? ""}`}>{value}</span>
        {note && <span class="faint">{note}</span>}
      </dd>
    </div>
  );
}
