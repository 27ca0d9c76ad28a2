/**
 * What has changed in the grid, as the master says it (server-sent events), and whether it is there at all.
 *
 * The first event after each connection names what has changed since the last one, or says that everything may have;
 * so a restart of the master, or a laptop's sleep, takes the same way as news. A master that has nothing to say shows
 * now and then that it is there: one that is silent for longer is away, even if the connection stands.
 */
import { signal } from "@preact/signals";
import { askOnlyUnless, get, heard, onOutcome, url } from "../api/client";
import type { GridChange } from "../api/types";

export type LinkState = "connecting" | "live" | "away";
type Listener = (change: GridChange) => void;

const SHORTEST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;
/** Three times as long as the master is ever silent. */
const SILENT_MS = 15_000;
const LOOK_EVERY_MS = 1000;
/** Whoever looks every second and has not for so long was asleep. */
const ASLEEP_MS = 5000;
/** A hidden page closes its connection: browsers have only six to a master, for all tabs together. */
const UNSEEN_MS = 10_000;

export const link = signal<LinkState>("connecting");
export const awaySince = signal<number | null>(null);

const listeners = new Set<Listener>();
let source: EventSource | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;
let heardAt = 0;
let pauseMs = SHORTEST_PAUSE_MS;
let isWanted = false;
/** Of the last event: a master that still knows it names only what has changed since. */
let lastId = "";

/** Calls the listener on changes, until the returned function is called. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function startListening(): void {
  isWanted = true;
  connect();
}

export function stopListening(): void {
  isWanted = false;
  lastId = "";
  heard("");
  link.value = "connecting";
  disconnect();
}

/** After a laptop's sleep or a cut cable nobody says that the connection is gone: a new one shows it at once. */
export function watchSilence(): void {
  let lookedAt = Date.now();
  setInterval(() => {
    const hasSlept = Date.now() - lookedAt > ASLEEP_MS;
    lookedAt = Date.now();
    if (hasSlept) reconnect();
    else if (source && Date.now() - heardAt > SILENT_MS) lose();
  }, LOOK_EVERY_MS);
  addEventListener("online", reconnect);
}

function reconnect(): void {
  if (isWanted && !document.hidden) connect();
}

/** What is out of sight needs no news; when it is looked at again the first event says what has changed. */
export function watchVisibility(): void {
  document.addEventListener("visibilitychange", () => {
    if (!isWanted) return;
    if (document.hidden) {
      clearTimeout(timer);
      timer = setTimeout(rest, UNSEEN_MS);
    } else if (source) clearTimeout(timer);
    else connect();
  });
}

function connect(): void {
  disconnect();
  heardAt = Date.now();
  source = new EventSource(url("/events", { after: lastId, rest_s: 1 }));
  source.addEventListener("here", () => (heardAt = Date.now()));
  source.addEventListener("change", (event) => {
    lastId = event.lastEventId;
    heard(lastId);
    hear(JSON.parse(event.data) as GridChange);
  });
  source.onerror = () => {
    lose();
    void get("/whoami").catch(() => undefined); // who was signed out learns it so: the stream does not say why
  };
}

function rest(): void {
  disconnect();
  link.value = "connecting"; // what else is streamed rests, too
}

function disconnect(): void {
  source?.close();
  source = undefined;
  clearTimeout(timer);
}

/** A failed request reveals a lost connection before the stream does. */
export function watchRequests(): void {
  askOnlyUnless(() => link.value === "away");
  onOutcome((problem) => {
    if (problem?.isAway && source && link.value === "live") lose();
  });
}

function hear(change: GridChange): void {
  heardAt = Date.now();
  pauseMs = SHORTEST_PAUSE_MS;
  link.value = "live";
  awaySince.value = null;
  for (const listener of listeners) listener(change);
}

function lose(): void {
  link.value = "away";
  awaySince.value ??= Date.now() / 1000;
  disconnect();
  timer = setTimeout(connect, pauseMs);
  pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 1.6);
}
