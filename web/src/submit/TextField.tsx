import type { ComponentChildren } from "preact";
import { Field } from "../ui/Field";

interface Props {
  label: string;
  value: string;
  onChange: (value: string) => void;
  hint?: ComponentChildren;
  mistake?: string | undefined;
  placeholder?: string;
  rows?: number;
  isCode?: boolean;
}

export function TextField({ label, value, onChange, hint, mistake, placeholder, rows, isCode }: Props) {
  const own = {
    value,
    placeholder,
    class: isCode ? "code-input" : undefined,
    spellcheck: false,
    autocomplete: "off" as const,
    onInput: (event: { currentTarget: { value: string } }) => onChange(event.currentTarget.value),
  };
  return (
    <Field label={label} hint={hint} mistake={mistake}>
      {(attributes) =>
        rows ? <textarea rows={rows} {...own} {...attributes} /> : <input type="text" {...own} {...attributes} />
      }
    </Field>
  );
}
