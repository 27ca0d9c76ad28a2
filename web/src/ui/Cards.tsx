import type { ComponentChildren, HTMLAttributes } from "preact";

/** A column of a table: `name` heads it, and names its value where a row is shown as a card, on a phone. */
export interface Column<Row> {
  name: string;
  show: (row: Row) => ComponentChildren;
  class?: "right number" | "number" | "reason";
  title?: (row: Row) => string | undefined;
}

interface Props<Row> {
  rows: Row[];
  keyOf: (row: Row) => string | number;
  /** The first one names the row. */
  columns: Column<Row>[];
  /** What may be done with a row, in a last column; undefined: nothing. */
  actions?: ((row: Row) => ComponentChildren) | undefined;
  body?: HTMLAttributes<HTMLTableSectionElement>;
}

/** A table whose rows become cards where the screen is narrow. */
export function Cards<Row>({ rows, keyOf, columns, actions, body }: Props<Row>) {
  const [first, ...others] = columns;
  return (
    <div class="scroller">
      <table class="cards">
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.name} scope="col" class={column.class === "right number" ? "right" : undefined}>
                {column.name}
              </th>
            ))}
            {actions && (
              <th scope="col">
                <span class="unseen">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody {...body}>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              <th scope="row" class={first?.class}>
                {first?.show(row)}
              </th>
              {others.map((column) => (
                <td key={column.name} data-name={column.name} class={column.class} title={column.title?.(row)}>
                  {column.show(row)}
                </td>
              ))}
              {actions && <td class="actions">{actions(row)}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
