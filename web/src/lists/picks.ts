/** Rows that are chosen in a table, to do something with all of them. */
import { useState } from "preact/hooks";

export interface Picks<Key> {
  has: (key: Key) => boolean;
  toggle: (key: Key) => void;
  set: (keys: Iterable<Key>) => void;
}

export function usePicks<Key>(): Picks<Key> {
  const [chosen, choose] = useState<ReadonlySet<Key>>(new Set());
  return {
    has: (key) => chosen.has(key),
    toggle: (key) => choose(new Set(chosen.has(key) ? [...chosen].filter((one) => one !== key) : [...chosen, key])),
    set: (keys) => choose(new Set(keys)),
  };
}
