import type { ComponentChildren } from "preact";

interface Props {
  title: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
}

/** A titled part of a page, with room for its own controls. */
export function Section({ title, aside, children }: Props) {
  return (
    <section class="section" aria-label={title}>
      <header>
        <h2>{title}</h2>
        {aside && <div class="aside">{aside}</div>}
      </header>
      {children}
    </section>
  );
}
