/** A confirmation before an irreversible action, as a dialog of the browser. */
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Button } from "./Button";

interface Question {
  title: string;
  text: string;
  yes: string;
  answer: (isYes: boolean) => void;
}

const question = signal<Question | null>(null);

/** Whether the person at the screen says yes. */
export function confirmed(title: string, text: string, yes: string): Promise<boolean> {
  return new Promise((resolve) => {
    question.value = { title, text, yes, answer: resolve };
  });
}

export function ConfirmDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const asked = question.value;

  useEffect(() => {
    if (asked) dialog.current?.showModal();
  }, [asked]);

  function close(isYes: boolean): void {
    asked?.answer(isYes);
    question.value = null;
    dialog.current?.close();
  }

  if (!asked) return null;
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="question" onCancel={() => close(false)}>
      <h2 id="question">{asked.title}</h2>
      <p>{asked.text}</p>
      <div class="buttons end">
        <Button onClick={() => close(false)}>Keep it</Button>
        <Button kind="danger" onClick={() => close(true)}>
          {asked.yes}
        </Button>
      </div>
    </dialog>
  );
}
