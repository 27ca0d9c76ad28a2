/** A table that is sorted by a column; the address says by which: `?sort=Speed`, `?sort=-Speed` for the largest first. */
import { useWord } from "../router";

export interface Sorting {
  column: string | null;
  isDown: boolean;
  /** The next order of this column: the largest first, the smallest first, as the table comes. */
  turn: (column: string) => void;
}

export function useSorting(name: string): Sorting {
  const [word, setWord] = useWord(name);
  const isDown = word?.startsWith("-") ?? false;
  const column = word && isDown ? word.slice(1) : word;
  return { column, isDown, turn: (chosen) => setWord(chosen !== column ? `-${chosen}` : isDown ? chosen : null) };
}
