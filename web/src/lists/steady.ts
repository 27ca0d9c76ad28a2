/** Rows that keep their place while the pointer is on them, although the queue's order changes all the time. */
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

/** Returns the rows in their previous order, with new ones at the end. */
export function inOrder<T extends { id: number }>(items: T[], order: readonly number[]): T[] {
  const places = new Map(order.map((id, place) => [id, place]));
  const known = items.filter((item) => places.has(item.id)).sort((a, b) => places.get(a.id)! - places.get(b.id)!);
  return [...known, ...items.filter((item) => !places.has(item.id))];
}
