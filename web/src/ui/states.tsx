/** Placeholders for data: loading, empty, failed. */
import type { ComponentChildren } from "preact";
import type { Problem } from "../api/client";
import type { Resource } from "../live/resource";

export function Loading({ what }: { what: string }) {
  return (
    <p class="state loading" role="status">
      Reading {what} …
    </p>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="state empty">{children}</div>;
}

/** The master's own words, and the next step. */
export function ProblemNote({ problem, hasHint = true }: { problem: Problem; hasHint?: boolean }) {
  return (
    <div class="state problem" role="alert">
      <p>{sentence(problem.message)}</p>
      {problem.errors.length > 0 && (
        <ul>
          {problem.errors.map((error) => (
            <li key={error.at}>
              <code>{error.at}</code>: {error.message}
            </li>
          ))}
        </ul>
      )}
      {hasHint && problem.hint && <p class="faint">{sentence(problem.hint)}</p>}
    </div>
  );
}

interface Props<T> {
  of: Resource<T>;
  what: string;
  children: (data: T) => ComponentChildren;
}

/** Data where there is some, however old: the banner says that the master is away. */
export function Shown<T>({ of, what, children }: Props<T>) {
  if (of.data !== undefined && !(of.problem && !of.problem.isAway)) return <>{children(of.data)}</>;
  if (of.problem) return <ProblemNote problem={of.problem} />;
  return <Loading what={what} />;
}

function sentence(text: string): string {
  const whole = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?`]$/.test(whole) ? whole : `${whole}.`;
}
