/** Pages of a list that the master hands out by cursor: forward, and back the way one came. The address has both. */
import { setWords, useWord } from "../router";
import { Button } from "../ui/Button";

export interface Pages {
  cursor: string | null;
  number: number;
  forward: (cursor: string) => void;
  back: () => void;
}

/** What a page other than the first is called in the address: `2:cursor`. */
const PLACE = /^(\d+):(.+)$/s;
/** Cursors by the address that they led to, so that Previous finds its way. A page that was opened at it has none. */
const earlier = new Map<string, string | null>();

/** `name` is the list's in the address's query; a list that is filtered anew takes the word away with its own. */
export function usePages(name: string): Pages {
  const [word, setWord] = useWord(name);
  const place = PLACE.exec(word ?? "");
  const number = place ? Number(place[1]) : 1;
  return {
    cursor: place?.[2] ?? null,
    number,
    forward: (cursor) => {
      const next = `${number + 1}:${cursor}`;
      earlier.set(next, word);
      setWord(next);
    },
    back: () => setWord(earlier.get(word ?? "") ?? null),
  };
}

/** Chooses a filter of a list, which begins at its first page again. */
export function choose(filter: string, chosen: string | null, pages: string): void {
  setWords({ [filter]: chosen, [pages]: null });
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
