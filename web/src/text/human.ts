/** Numbers as people read them; times in the viewer's zone. The command line writes them alike. */

import type { Period } from "../api/types";

const UNITS: [number, string][] = [
  [365 * 86400, "y"],
  [86400, "d"],
  [3600, "h"],
  [60, "m"],
  [1, "s"],
];

/** Two units at most: `0.4s`, `12s`, `3m 5s`, `2h 10m`, `4d 6h`, `195y 193d`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)}s`;
  let whole = Math.round(seconds);
  const place = UNITS.findIndex(([length]) => whole >= length);
  const parts: string[] = [];
  for (const [length, unit] of UNITS.slice(place, place + 2)) {
    const count = Math.floor(whole / length);
    whole %= length;
    if (count || !parts.length) parts.push(`${count}${unit}`);
  }
  return parts.join(" ");
}

/** Energy in three digits: `12.3 Wh`, `1.23 kWh`. */
export function energy(kwh: number): string {
  if (kwh > 0 && kwh < 1e-6) return "<0.001 Wh";
  return kwh >= 1 ? `${digits(kwh)} kWh` : `${digits(1000 * kwh)} Wh`;
}

/** A mass: `320 g`, `4.1 kg`. */
export function grams(count: number): string {
  return count < 1000 ? `${digits(count)} g` : `${digits(count / 1000)} kg`;
}

function digits(value: number): string {
  return value < 1000 ? String(Number(value.toPrecision(3))) : Math.round(value).toLocaleString("en");
}

/** A delay that may be far below a second: `12 ms`, `1.4 s`. */
export function delay(seconds: number): string {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
}

export function ago(then: number | null | undefined, now: number): string {
  if (then === null || then === undefined) return "–";
  return now - then < 1.5 ? "just now" : `${duration(now - then)} ago`;
}

/** How long something took, or has taken so far. */
export function between(start: number | null, end: number | null, now: number): string {
  return start === null ? "–" : duration((end ?? now) - start);
}

/** How long a period of the master's took, or has taken so far: the master says where it begins and ends. */
export function period(of: Period | null | undefined, now: number): string {
  return of ? between(of.since, of.until ?? null, now) : "–";
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const CLOCK_S = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});

/** The last second that a date can represent; other values are shown as unknown. */
const LAST_S = 8.64e12;

function isMoment(then: number | null | undefined): then is number {
  return then !== null && then !== undefined && Math.abs(then) <= LAST_S;
}

/** `2026-11-21 16:42:10`, in the viewer's zone. */
export function moment(then: number | null | undefined): string {
  return isMoment(then) ? `${day(then)} ${CLOCK_S.format(then * 1000)}` : "–";
}

/** Formats a time of today as a clock time, other times with the day. */
export function shortMoment(then: number | null | undefined, now: number): string {
  if (!isMoment(then)) return "–";
  const clock = CLOCK.format(then * 1000);
  return day(then) === day(now) ? clock : `${day(then)} ${clock}`;
}

export function clock(then: number): string {
  return isMoment(then) ? CLOCK_S.format(then * 1000) : "–";
}

export function day(then: number): string {
  const date = new Date(then * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

const DAY = /^(\d{4})-(\d\d)-(\d\d)$/;

/** When a day such as `2026-11-21` begins, in the viewer's zone; null: it is no day. */
export function startOfDay(text: string | null): number | null {
  return midnight(text, 0);
}

/** When the day after it begins: days may have 23 or 25 hours. */
export function endOfDay(text: string | null): number | null {
  return midnight(text, 1);
}

function midnight(text: string | null, more: number): number | null {
  const [, year, month, date] = DAY.exec(text ?? "") ?? [];
  if (!year) return null;
  const at = new Date(Number(year), Number(month) - 1, Number(date) + more).getTime();
  return Number.isNaN(at) ? null : at / 1000;
}

/** As `<input type="datetime-local">` holds it. */
export function toInput(then: number): string {
  const date = new Date(then * 1000);
  return `${day(then)}T${two(date.getHours())}:${two(date.getMinutes())}`;
}

export function fromInput(text: string): number | null {
  const milliseconds = new Date(text).getTime();
  return Number.isNaN(milliseconds) ? null : milliseconds / 1000;
}

/** Bytes, 1000-based: `512 B`, `1.5 GB`. */
export function amount(bytes: number): string {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (bytes < 1000)
      return unit === "B" || bytes >= 100 ? `${bytes.toFixed(0)} ${unit}` : `${bytes.toFixed(1)} ${unit}`;
    bytes /= 1000;
  }
  return `${bytes.toFixed(1)} TB`;
}

/** A job's amount of computation. */
export function size(seconds: number | null | undefined): string {
  return seconds === null || seconds === undefined ? "unknown" : duration(seconds);
}

export function count(number: number): string {
  return number.toLocaleString("en");
}

export function plural(number: number, noun: string): string {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Formats cores and speeds with few decimals and no trailing zeros. */
export function decimal(number: number, places = 1): string {
  return Number(number.toFixed(places)).toString();
}

export function percent(part: number, whole: number): string {
  return whole > 0 ? `${((100 * part) / whole).toFixed(part < whole && part / whole > 0.995 ? 1 : 0)} %` : "–";
}

/** Formats CPU time as `1h 5m`, large amounts in hours. */
export function cpuTime(seconds: number): string {
  return seconds >= 100 * 3600 ? `${count(Math.round(seconds / 3600))} h` : duration(seconds);
}

const two = (number: number): string => String(number).padStart(2, "0");

const collator = new Intl.Collator("en", { numeric: true });

/** Orders names as people count: pc-9 before pc-10. */
export const naturally = (a: string, b: string): number => collator.compare(a, b);
