/** Times come from the master as RFC 3339; the page reckons in seconds since 1970. */

type TimeKey = `${string}_at` | "at" | "now" | "since" | "until" | "lease_until";
/** What users wrote: nothing in there is a time of the master's. */
type OfUsers = "spec" | "parameters" | "env";

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;
const TIME_KEY = /^(.+_at|at|now|since|until|lease_until)$/;
const OF_USERS: ReadonlySet<string> = new Set<OfUsers>(["spec", "parameters", "env"]);

/** The type of an answer once its times are seconds. */
export type InSeconds<T> = T extends unknown[]
  ? { [Place in keyof T]: InSeconds<T[Place]> }
  : T extends object
    ? { [K in keyof T]: K extends OfUsers ? T[K] : K extends TimeKey ? SecondsOf<T[K]> : InSeconds<T[K]> }
    : T;

type SecondsOf<T> = T extends string ? number : T extends object ? InSeconds<T> : T;

/** Turns the times of an answer into seconds, in place. */
export function inSeconds(answer: unknown): unknown {
  if (Array.isArray(answer)) answer.forEach(inSeconds);
  else if (answer !== null && typeof answer === "object") {
    const fields = answer as Record<string, unknown>;
    for (const [key, value] of Object.entries(fields)) {
      if (typeof value === "string" && TIME_KEY.test(key) && TIME.test(value)) fields[key] = Date.parse(value) / 1000;
      else if (!OF_USERS.has(key)) inSeconds(value);
    }
  }
  return answer;
}
