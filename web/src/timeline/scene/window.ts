/** The window of time that is looked at: how zooming and panning change it. */

export interface Window {
  since: number;
  until: number;
}

const SHORTEST_S = 2;
const LONGEST_S = 400 * 86400;
/** Of a live window, so much lies in the future: the newest bars do not touch the edge. */
const AHEAD = 0.03;
/** ... and so much at the most, where something is planned. */
const MOST_AHEAD = 0.45;

export const spanOf = (window: Window): number => window.until - window.since;

export function zoomed(window: Window, factor: number, around: number): Window {
  const span = Math.min(LONGEST_S, Math.max(SHORTEST_S, spanOf(window) * factor));
  const share = (around - window.since) / spanOf(window);
  const since = around - share * span;
  return { since, until: since + span };
}

export function panned(window: Window, seconds: number): Window {
  return { since: window.since + seconds, until: window.until + seconds };
}

/** The last `span` seconds, up to now; `planned`: and on to what is planned, for which a part of them is left. */
export function live(span: number, now: number, planned = now): Window {
  const ahead = Math.min(MOST_AHEAD, Math.max(AHEAD, ((planned - now) * 1.05) / span));
  const until = now + span * ahead;
  return { since: until - span, until };
}

/** Whether all of `inner` is within `outer`. */
export function covers(outer: Window, inner: Window): boolean {
  return outer.since <= inner.since && outer.until >= inner.until;
}
