import { decimal } from "../text/human";

interface Props {
  value: number;
  /** What is offered. */
  most: number;
  /** What there is. */
  whole: number;
  unit: string;
}

/** A figure beside a strip: in use, of what is offered, of what there is. */
export function Meter({ value, most, whole, unit }: Props) {
  const widest = Math.max(whole, most, value, 0.001);
  return (
    <span class="meter">
      <svg class="strip" viewBox={`0 0 ${widest} 1`} preserveAspectRatio="none" aria-hidden="true">
        <rect class="offered" x="0" y="0" width={Math.max(0, most)} height="1" />
        <rect class="running" x="0" y="0" width={Math.max(0, value)} height="1" />
      </svg>
      <span class="number">
        {decimal(value)}/{decimal(most)}
        <span class="unseen"> {unit}</span>
      </span>
    </span>
  );
}
