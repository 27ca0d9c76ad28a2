/** The theme, light or dark: the system's, or the user's choice. */
import { signal } from "@preact/signals";
import { Button } from "./Button";

type Choice = "light" | "dark";
const KEY = "loopline-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

const chosen = signal<Choice | null>(read());
/** The theme in force; canvases are drawn again when it changes. */
export const theme = signal<Choice>(effective());

system.addEventListener("change", apply);
apply();

export function ThemeSwitch() {
  const other: Choice = theme.value === "dark" ? "light" : "dark";
  return (
    <Button kind="quiet" label={`Switch to ${other}`} onClick={() => choose(other)}>
      <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
        <circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.4" />
        <path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor" />
      </svg>
    </Button>
  );
}

/** Follows the system again if the choice equals the system's theme. */
function choose(choice: Choice): void {
  chosen.value = choice === (system.matches ? "dark" : "light") ? null : choice;
  try {
    if (chosen.value) localStorage.setItem(KEY, chosen.value);
    else localStorage.removeItem(KEY);
  } catch {
    // a browser that keeps nothing: the choice lasts as long as the page
  }
  apply();
}

function apply(): void {
  theme.value = effective();
  document.documentElement.dataset.theme = theme.value;
}

function effective(): Choice {
  return chosen.value ?? (system.matches ? "dark" : "light");
}

function read(): Choice | null {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : null;
  } catch {
    return null;
  }
}
