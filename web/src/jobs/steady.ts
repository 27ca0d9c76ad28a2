/** Rows that stay where they are while somebody points at them: the queue's order turns with every placement. */
import { useRef, useState } from "preact/hooks";

interface Steady<T> {
  items: T[];
  /** For the element that holds the rows. */
  handlers: Record<"onPointerEnter" | "onPointerLeave" | "onFocusIn" | "onFocusOut", () => void>;
}

export function useSteadyOrder<T extends { id: number }>(items: T[]): Steady<T> {
  const [isHeld, hold] = useState(false);
  const order = useRef<number[]>([]);
  const shown = isHeld ? inOrder(items, order.current) : items;
  order.current = shown.map((item) => item.id);
  const [keep, release] = [() => hold(true), () => hold(false)];
  return {
    items: shown,
    handlers: { onPointerEnter: keep, onPointerLeave: release, onFocusIn: keep, onFocusOut: release },
  };
}

/** As before, what is new at the end. */
export function inOrder<T extends { id: number }>(items: T[], order: readonly number[]): T[] {
  const places = new Map(order.map((id, place) => [id, place]));
  const known = items.filter((item) => places.has(item.id)).sort((a, b) => places.get(a.id)! - places.get(b.id)!);
  return [...known, ...items.filter((item) => !places.has(item.id))];
}
