import { useEffect, useRef, useState } from "preact/hooks";
import { setWords, useWord } from "../router";

interface Props {
  /** The word of the address that holds the text. */
  name: string;
  label: string;
  placeholder: string;
  /** The word that says which page of the list is shown: what is found anew begins at its first page. */
  pages?: string;
}

const SETTLE_MS = 300;

/** A text to search by. The address has it, so that Back, a reload and a colleague find the same. */
export function SearchField({ name, label, placeholder, pages }: Props) {
  const [word] = useWord(name);
  const [text, setText] = useState(word ?? "");
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => setText(word ?? ""), [word]);
  useEffect(() => () => clearTimeout(timer.current), []);

  function search(typed: string): void {
    setText(typed);
    clearTimeout(timer.current);
    const words = { [name]: typed || null, ...(pages ? { [pages]: null } : {}) };
    timer.current = setTimeout(() => setWords(words, { replace: true }), SETTLE_MS);
  }

  return (
    <input
      type="search"
      placeholder={placeholder}
      aria-label={label}
      maxLength={200}
      value={text}
      onInput={(event) => search(event.currentTarget.value)}
    />
  );
}
