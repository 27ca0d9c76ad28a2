/** A table that is sorted by a column; the address says by which: `?sort=Speed`, `?sort=-Speed` for the largest first. */
import { setWords, useWord } from "../router";

export interface Sorting {
  /** As the address has it. */
  word: string | null;
  column: string | null;
  isDown: boolean;
  /** The next order of this column: the largest first, the smallest first, as the table comes. */
  turn: (column: string) => void;
}

/** `pages` is the word that says which page of the list is shown: what is sorted anew begins at its first page. */
export function useSorting(name: string, pages = "page"): Sorting {
  const [word] = useWord(name);
  const setWord = (order: string | null): void => setWords({ [name]: order, [pages]: null });
  const isDown = word?.startsWith("-") ?? false;
  const column = word && isDown ? word.slice(1) : word;
  return {
    word,
    column,
    isDown,
    turn: (chosen) => setWord(chosen !== column ? `-${chosen}` : isDown ? chosen : null),
  };
}
