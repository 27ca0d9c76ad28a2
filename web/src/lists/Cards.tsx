import type { ComponentChildren, HTMLAttributes } from "preact";
import { useRef } from "preact/hooks";
import type { Picks } from "./picks";
import { useRowsNear } from "./rows";
import type { Sorting } from "./sorting";

/** A column of a table: `name` heads it, and names its value where a row is shown as a card, on a phone. */
export interface Column<Row> {
  name: string;
  /** What it is sorted by in the address, where another column may have the same name. */
  id?: string;
  show: (row: Row) => ComponentChildren;
  class?: "right number" | "number" | "reason";
  title?: (row: Row) => string | undefined;
  /** What the column means. */
  about?: string;
  /** What rows are sorted by in this column; undefined: they cannot be. */
  order?: (row: Row) => number | string | null | undefined;
}

interface Props<Row, Key extends string | number> {
  rows: Row[];
  keyOf: (row: Row) => Key;
  /** The first one names the row. */
  columns: Column<Row>[];
  /** What may be done with a row, in a last column; undefined: nothing. */
  actions?: ((row: Row) => ComponentChildren) | undefined;
  /** Lets rows be chosen. */
  picks?: Picks<Key> | undefined;
  /** Whether this row may be. */
  isPickable?: (row: Row) => boolean;
  sorting?: Sorting | undefined;
  rowClass?: (row: Row) => string;
  body?: HTMLAttributes<HTMLTableSectionElement>;
}

/** A table whose rows become cards where the screen is narrow. */
export function Cards<Row, Key extends string | number>(props: Props<Row, Key>) {
  const { rows, keyOf, columns, actions, picks, rowClass, body } = props;
  const [first, ...others] = columns;
  const place = useRef<HTMLTableSectionElement>(null);
  const near = useRowsNear(place, rows.length);
  return (
    <div class="scroller">
      <table class="cards" aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            {picks && <UnseenHead text="Chosen" />}
            {columns.map((column) => (
              <Head key={column.id ?? column.name} column={column} sorting={props.sorting} />
            ))}
            {actions && <UnseenHead text="Actions" />}
          </tr>
        </thead>
        <tbody {...body} ref={place}>
          <UnseenRows height_px={near.above_px} />
          {rows.slice(near.from, near.to).map((row, at) => (
            <tr key={keyOf(row)} class={rowClass?.(row)} aria-rowindex={near.from + at + 2}>
              {picks && (
                <td class="pick">{props.isPickable?.(row) !== false && <Pick of={keyOf(row)} picks={picks} />}</td>
              )}
              <th scope="row" class={first?.class}>
                {first?.show(row)}
              </th>
              {others.map((column) => (
                <td
                  key={column.id ?? column.name}
                  data-name={column.name}
                  class={column.class}
                  title={column.title?.(row)}
                >
                  {column.show(row)}
                </td>
              ))}
              {actions && <td class="actions">{actions(row)}</td>}
            </tr>
          ))}
          <UnseenRows height_px={near.below_px} />
        </tbody>
      </table>
    </div>
  );
}

/** Room of rows that are out of sight. */
function UnseenRows({ height_px }: { height_px: number }) {
  if (!height_px) return null;
  return (
    <tr class="unseen-rows" aria-hidden="true" style={{ height: `${height_px}px` }}>
      <td />
    </tr>
  );
}

function UnseenHead({ text }: { text: string }) {
  return (
    <th scope="col">
      <span class="unseen">{text}</span>
    </th>
  );
}

function Pick<Key extends string | number>({ of, picks }: { of: Key; picks: Picks<Key> }) {
  return (
    <input type="checkbox" aria-label={`choose ${of}`} checked={picks.has(of)} onChange={() => picks.toggle(of)} />
  );
}

function Head<Row>({ column, sorting }: { column: Column<Row>; sorting: Sorting | undefined }) {
  const { name, about, id = name } = column;
  const isSorted = sorting?.column === id;
  const mark = isSorted ? (sorting.isDown ? " ↓" : " ↑") : "";
  return (
    <th
      scope="col"
      class={column.class === "right number" ? "right" : undefined}
      title={about}
      aria-sort={isSorted ? (sorting.isDown ? "descending" : "ascending") : undefined}
    >
      {sorting && column.order ? (
        <button type="button" class="sort" onClick={() => sorting.turn(id)}>
          {name}
          {mark}
        </button>
      ) : (
        name
      )}
    </th>
  );
}
