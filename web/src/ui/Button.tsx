import type { ComponentChildren } from "preact";

interface Props {
  children: ComponentChildren;
  kind?: "plain" | "main" | "danger" | "quiet";
  type?: "button" | "submit";
  label?: string;
  isBusy?: boolean;
  isDisabled?: boolean;
  isPressed?: boolean;
  onClick?: () => void;
}

/** `label` describes the action if the text alone does not. */
export function Button({
  children,
  kind = "plain",
  type = "button",
  label,
  isBusy,
  isDisabled,
  isPressed,
  onClick,
}: Props) {
  return (
    <button
      class={`button ${kind}`}
      type={type}
      aria-label={label}
      title={label}
      aria-busy={isBusy}
      aria-pressed={isPressed}
      disabled={isDisabled || isBusy}
      onClick={onClick}
    >
      {children}
    </button>
  );
}
