/** Pages of a list that the master hands out by cursor: forward, and back the way one came. */
import { useState } from "preact/hooks";
import { Button } from "./Button";

export interface Pages {
  cursor: string | null;
  number: number;
  forward: (cursor: string) => void;
  back: () => void;
}

/** Begins anew with another `key`: another filter. */
export function usePages(key: string): Pages {
  const [state, setState] = useState<{ key: string; cursors: string[] }>({ key, cursors: [] });
  const cursors = state.key === key ? state.cursors : [];
  return {
    cursor: cursors.at(-1) ?? null,
    number: cursors.length + 1,
    forward: (cursor) => setState({ key, cursors: [...cursors, cursor] }),
    back: () => setState({ key, cursors: cursors.slice(0, -1) }),
  };
}

export function Pager({ pages, next }: { pages: Pages; next: string | null }) {
  if (pages.number === 1 && next === null) return null;
  return (
    <nav class="pager" aria-label="Pages of the list">
      <Button isDisabled={pages.number === 1} onClick={pages.back}>
        Previous
      </Button>
      <span class="faint">page {pages.number}</span>
      <Button isDisabled={next === null} onClick={() => next !== null && pages.forward(next)}>
        Next
      </Button>
    </nav>
  );
}
