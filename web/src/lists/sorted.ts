import { naturally } from "../text/human";
import type { Sorting } from "./sorting";

interface Ordered<Row> {
  name: string;
  id?: string;
  order?: (row: Row) => number | string | null | undefined;
}

/** Rows of which nothing is known come last, either way. */
export function sorted<Row>(
  rows: Row[],
  columns: Ordered<Row>[],
  { column, isDown }: Pick<Sorting, "column" | "isDown">,
): Row[] {
  const order = columns.find(({ name, id = name }) => id === column)?.order;
  if (!order) return rows;
  const sign = isDown ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [left, right] = [order(a) ?? null, order(b) ?? null];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    if (typeof left === "string" && typeof right === "string") return sign * naturally(left, right);
    return left === right ? 0 : left < right ? -sign : sign;
  });
}
