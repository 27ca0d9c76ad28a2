/** Which page is shown: the path in the address bar, and links that change it without a reload. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

export const path = signal(location.pathname);
export const search = signal(location.search);

window.addEventListener("popstate", read);

export function go(to: string, { replace = false } = {}): void {
  if (to === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  const isSamePage = location.pathname === path.value;
  read();
  if (!isSamePage) arrive();
}

/** The path's parts if it has the pattern's shape (`/jobs/:job`); null if not. */
export function match(pattern: string, given: string): Record<string, string> | null {
  const wanted = pattern.split("/").filter(Boolean);
  const parts = given.split("/").filter(Boolean);
  if (wanted.length !== parts.length) return null;
  const found: Record<string, string> = {};
  for (const [place, name] of wanted.entries()) {
    const part = parts[place]!;
    const given = name.startsWith(":") ? decoded(part) : null;
    if (given !== null) found[name.slice(1)] = given;
    else if (name !== part) return null;
  }
  return found;
}

/** A part that is not well-formed names nothing. */
function decoded(part: string): string | null {
  try {
    return decodeURIComponent(part);
  } catch {
    return null;
  }
}

/** A word of the address's query; `null` takes it away. It stays where the user comes back to the page. */
export function useWord(name: string): [string | null, (word: string | null) => void] {
  const word = new URLSearchParams(search.value).get(name);
  return [word, (chosen) => setWords({ [name]: chosen })];
}

/** Changes words of the address's query: a step to which Back returns, unless it replaces the last one. */
export function setWords(words: Record<string, string | null>, how: { replace?: boolean } = {}): void {
  const query = new URLSearchParams(location.search);
  for (const [name, word] of Object.entries(words)) word === null ? query.delete(name) : query.set(name, word);
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), how);
}

interface LinkProps {
  to: string;
  children: ComponentChildren;
  class?: string;
  "aria-current"?: "page" | undefined;
}

export function Link({ to, children, ...rest }: LinkProps) {
  return (
    <a {...rest} href={to} onClick={(event) => follow(event, to)}>
      {children}
    </a>
  );
}

/** With a modifier it is the browser's: a new tab, a new window. */
function follow(event: MouseEvent, to: string): void {
  if (event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(to);
}

function read(): void {
  path.value = location.pathname;
  search.value = location.search;
}

/** On a new page reading begins at its top: for the eye, and for a screen reader. */
function arrive(): void {
  window.scrollTo(0, 0);
  requestAnimationFrame(() => document.querySelector<HTMLElement>("main")?.focus({ preventScroll: true }));
}
