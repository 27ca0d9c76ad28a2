/** A word after something was done, or could not be. */
import { signal } from "@preact/signals";
import { asProblem } from "../api/client";

const SHOWN_MS = 6000;
const said = signal<{ text: string; isBad: boolean } | null>(null);
let timer: ReturnType<typeof setTimeout> | undefined;

export function say(text: string, isBad = false): void {
  said.value = { text, isBad };
  clearTimeout(timer);
  timer = setTimeout(() => (said.value = null), SHOWN_MS);
}

/** Runs the action and shows an error. Returns true if it succeeded. */
export async function attempt(work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    const problem = asProblem(error);
    say(problem.hint ? `${problem.message}: ${problem.hint}` : problem.message, true);
    return false;
  }
}

export function Toast() {
  return (
    <div class="toast-place" role="status" aria-live="polite">
      {said.value && <div class={said.value.isBad ? "toast bad" : "toast"}>{said.value.text}</div>}
    </div>
  );
}
