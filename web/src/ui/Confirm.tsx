/** Questions to the person at the screen, as a dialog of the browser: whether something is meant, or why it is done. */
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Button } from "./Button";

interface Question {
  title: string;
  text: string;
  yes: string;
  no: string;
  /** Label of a line of text that goes with a yes; undefined: there is none. */
  label?: string;
  /** Takes the text; null: it is not meant. */
  answer: (given: string | null) => void;
}

const MOST_CHARACTERS = 200;
const question = signal<Question | null>(null);

/** Whether the person at the screen says yes to something irreversible. */
export async function confirmed(title: string, text: string, yes: string): Promise<boolean> {
  return (await answered({ title, text, yes, no: "Keep it" })) !== null;
}

/** What the person at the screen says to something that is about to be done, in one line; null: it is not meant. */
export function told(title: string, text: string, yes: string, label: string): Promise<string | null> {
  return answered({ title, text, yes, no: "Leave it", label });
}

function answered(asked: Omit<Question, "answer">): Promise<string | null> {
  return new Promise((resolve) => {
    question.value = { ...asked, answer: resolve };
  });
}

export function ConfirmDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const line = useRef<HTMLInputElement>(null);
  const asked = question.value;

  useEffect(() => {
    if (asked) dialog.current?.showModal();
  }, [asked]);

  function close(given: string | null): void {
    asked?.answer(given);
    question.value = null;
    dialog.current?.close();
  }

  function submit(event: Event): void {
    event.preventDefault();
    close(line.current?.value.trim() ?? "");
  }

  if (!asked) return null;
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="question" onCancel={() => close(null)}>
      <form onSubmit={submit}>
        <h2 id="question">{asked.title}</h2>
        <p>{asked.text}</p>
        {asked.label && (
          <label class="field">
            {asked.label}
            <input type="text" ref={line} maxLength={MOST_CHARACTERS} autofocus />
          </label>
        )}
        <div class="buttons end">
          <Button onClick={() => close(null)}>{asked.no}</Button>
          <Button kind={asked.label ? "main" : "danger"} type="submit">
            {asked.yes}
          </Button>
        </div>
      </form>
    </dialog>
  );
}
