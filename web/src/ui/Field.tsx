import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface Props {
  label: string;
  hint?: ComponentChildren;
  mistake?: string | undefined;
  children: (attributes: { id: string; "aria-describedby": string; "aria-invalid": boolean }) => ComponentChildren;
}

/** A form field: label, control, hint and error. */
export function Field({ label, hint, mistake, children }: Props) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, "aria-describedby": `${id}-note`, "aria-invalid": mistake !== undefined })}
      <p id={`${id}-note`} class={mistake ? "note bad" : "note"}>
        {mistake ?? hint}
      </p>
    </div>
  );
}
