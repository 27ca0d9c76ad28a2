/** Durations and amounts of memory as people type them. */

const SECONDS: Record<string, number> = { ms: 0.001, "": 1, s: 1, m: 60, min: 60, h: 3600, d: 86400, w: 7 * 86400 };
const BYTES: Record<string, number> = { "": 1, b: 1 };
for (const [place, letter] of [..."kmgt"].entries()) {
  BYTES[letter] = BYTES[`${letter}b`] = 1000 ** (place + 1);
  BYTES[`${letter}i`] = BYTES[`${letter}ib`] = 1024 ** (place + 1);
}

const PART = /(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*/g;

/** Seconds: `90`, `90s`, `10m`, `1h30m`, `2d`. */
export const seconds = (text: string): number => measure(text, SECONDS, "a duration such as 90s, 10m or 1h30m");

/** Bytes: `2GB` (1000-based), `512MiB` (1024-based), or a plain number. */
export const bytes = (text: string): number =>
  Math.round(measure(text, BYTES, "an amount of memory such as 2GB or 512MiB"));

function measure(text: string, units: Record<string, number>, expected: string): number {
  const source = text.trim().toLowerCase();
  const parts = [...source.matchAll(PART)];
  const isWhole = parts.length > 0 && parts.map((part) => part[0]).join("") === source;
  const areKnown = parts.every(([, , unit]) => unit! in units && (unit || parts.length === 1));
  if (!isWhole || !areKnown) throw new Error(`give ${expected}`);
  return parts.reduce((sum, [, number, unit]) => sum + Number(number) * units[unit!]!, 0);
}
