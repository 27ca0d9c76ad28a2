import type { ComponentChildren } from "preact";

const TONES: Record<string, string> = {
  succeeded: "good",
  running: "busy",
  failed: "bad",
  lost: "bad",
  mismatch: "bad",
  held: "held",
  waiting: "held",
  paused: "held",
  stalled: "bad",
  overdrawn: "bad",
  connected: "good",
  draining: "held",
  quarantined: "bad",
  away: "bad",
  asleep: "held",
  "in use": "owner",
  frozen: "owner",
  withheld: "owner",
};

/** A state as a word; its colour says the same again. */
export function Chip({ state, children }: { state: string; children?: ComponentChildren }) {
  return <span class={`chip ${TONES[state] ?? ""}`}>{children ?? state}</span>;
}
