/** Parses form values into a job's fields, as the command line does. Errors name the expected form. */

export type Scalar = string | number | boolean | null;
export interface Range {
  range: number[];
}
export type Values = Range | Scalar[];

const RANGE = /^(-?\d{1,15})\.\.(-?\d{1,15})(?::(-?\d{1,15}))?$/;
const LIKE_A_RANGE = /^-?[\d.]+\.\.-?[\d.]+(:.*)?$/;
const NUMBER = /^-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$/;
const ITEM = /\s*(?:"([^"]*)"|'([^']*)'|([^,"']*?))\s*(?=,|$)/y;

/** `1..100`, `1..100:5`, or `0.1, 0.01`; a quoted value stays text, commas and all. */
export function valuesOf(text: string): Values {
  const trimmed = text.trim();
  if (!trimmed) throw new Error("give values: 1..100, or 0.1, 0.01");
  const bounds = RANGE.exec(trimmed);
  if (bounds)
    return rangeOf(
      bounds
        .slice(1)
        .filter((bound) => bound !== undefined)
        .map(Number),
    );
  if (LIKE_A_RANGE.test(trimmed)) throw new Error("a range is of whole numbers: 1..100, or 1..100:5");
  return [...itemsOf(trimmed)];
}

/** Reads a JSON number as a number; anything else (007, nan, too large to be exact) stays text. */
export function scalarOf(text: string): Scalar {
  const number = NUMBER.exec(text);
  if (!number) return text;
  const value = Number(text);
  if (number[1] || number[2]) return Number.isFinite(value) ? value : text;
  return Number.isSafeInteger(value) ? value : text;
}

export const isRange = (values: Values): values is Range => !Array.isArray(values);

export function lengthOf(values: Values): number {
  if (!isRange(values)) return values.length;
  const [first, last, step] = boundsOf(values);
  return Math.max(0, Math.floor((last - first) / step) + 1);
}

export function valueAt(values: Values, place: number): Scalar {
  if (!isRange(values)) return values[place]!;
  const [first, , step] = boundsOf(values);
  return first + place * step;
}

function boundsOf({ range }: Range): [first: number, last: number, step: number] {
  return [range[0]!, range[1]!, range[2] ?? 1];
}

function rangeOf(range: number[]): Range {
  if (range[2] === 0 || lengthOf({ range }) === 0)
    throw new Error("this range is empty: give first..last or first..last:step");
  return { range };
}

function* itemsOf(text: string): Generator<Scalar> {
  let place = 0;
  while (place <= text.length) {
    ITEM.lastIndex = place;
    const found = ITEM.exec(text);
    if (!found || found[3] === "") throw new Error("give values between commas, quoted where they hold one");
    yield found[3] !== undefined ? scalarOf(found[3]) : (found[1] ?? found[2] ?? "");
    place = found.index + found[0].length + 1;
  }
}
