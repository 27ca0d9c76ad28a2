/** A table of parameters: CSV or tab-separated text with names in its first line, a task a line. */
import { type Scalar, scalarOf } from "./values";

export type Row = Record<string, Scalar>;
const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,63}$/;
const MOST_ROWS = 1_000_000;

export function rowsOf(text: string): Row[] {
  const [head, ...lines] = cellsOf(text);
  if (!head) throw new Error("the first line names the parameters, each other one is a task");
  const wrong = head.find((name) => !NAME.test(name));
  if (wrong !== undefined) throw new Error(`“${wrong}” cannot be a parameter’s name: letters, digits and _ only`);
  if (!lines.length) throw new Error("there is no line below the names");
  if (lines.length > MOST_ROWS) throw new Error(`a table may have ${MOST_ROWS.toLocaleString("en")} lines`);
  return lines.map((cells, place) => {
    if (cells.length !== head.length)
      throw new Error(`line ${place + 2} has ${cells.length} values, not ${head.length}`);
    return Object.fromEntries(cells.map((cell, column) => [head[column]!, scalarOf(cell)]));
  });
}

/** RFC 4180: a quoted cell may hold separators, line ends and doubled quotes. */
function cellsOf(text: string): string[][] {
  const separator = text.slice(0, (text + "\n").indexOf("\n")).includes("\t") ? "\t" : ",";
  const table: string[][] = [];
  let cells: string[] = [];
  let cell = "";
  let isQuoted = false;
  const endCell = (): void => void (cells.push(cell.trim()), (cell = ""));
  const endLine = (): void => {
    endCell();
    if (cells.some(Boolean)) table.push(cells);
    cells = [];
  };
  for (let place = 0; place < text.length; place++) {
    const sign = text[place]!;
    if (isQuoted && sign === '"' && text[place + 1] === '"') cell += text[++place]!;
    else if (sign === '"' && (isQuoted || cell.trim() === "")) isQuoted = !isQuoted;
    else if (isQuoted) cell += sign;
    else if (sign === separator) endCell();
    else if (sign === "\n") endLine();
    else if (sign !== "\r") cell += sign;
  }
  if (cell || cells.length) endLine();
  return table;
}
