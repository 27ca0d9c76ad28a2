/** Rows of a long table: only those near the screen are drawn, with room above and below for the others. */
import { type RefObject } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";

/** Tables of at most so many rows are drawn whole. */
export const FEW = 120;
const MARGIN_PX = 600;
const USUAL_PX = 33;

export interface Span {
  from: number;
  to: number;
}

export interface Drawn extends Span {
  above_px: number;
  below_px: number;
}

/** The rows whose pixels lie between two heights of the table's body. */
export function rowsBetween(top_px: number, bottom_px: number, row_px: number, count: number): Span {
  const from = Math.min(Math.max(0, Math.floor(top_px / row_px)), Math.max(0, count - 1));
  return { from, to: Math.min(count, Math.max(from + 1, Math.ceil(bottom_px / row_px))) };
}

/** The rows of the table's body that are drawn; which those are changes as the page is scrolled. */
export function useRowsNear(body: RefObject<HTMLElement | null>, count: number): Drawn {
  const [rowPx, setRowPx] = useState(USUAL_PX);
  const [span, setSpan] = useState<Span>({ from: 0, to: FEW });
  const isLong = count > FEW;

  useLayoutEffect(() => {
    const drawn = body.current?.querySelectorAll<HTMLElement>("tr:not(.unseen-rows)");
    if (!isLong || !drawn?.length) return;
    const height = drawn[drawn.length - 1]!.getBoundingClientRect().bottom - drawn[0]!.getBoundingClientRect().top;
    const mean = height / drawn.length;
    if (mean > 0 && Math.abs(mean - rowPx) > 1) setRowPx(mean);
  });

  useEffect(() => {
    if (!isLong) return;
    let frame = 0;
    const look = (): void => {
      frame = 0;
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const next = rowsBetween(-top - MARGIN_PX, innerHeight - top + MARGIN_PX, rowPx, count);
      setSpan((known) => (known.from === next.from && known.to === next.to ? known : next));
    };
    const plan = (): void => void (frame ||= requestAnimationFrame(look));
    look();
    addEventListener("scroll", plan, { passive: true });
    addEventListener("resize", plan);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", plan);
      removeEventListener("resize", plan);
    };
  }, [isLong, rowPx, count]);

  if (!isLong) return { from: 0, to: count, above_px: 0, below_px: 0 };
  const from = Math.min(span.from, count - 1);
  const to = Math.min(count, Math.max(span.to, from + 1));
  return { from, to, above_px: from * rowPx, below_px: (count - to) * rowPx };
}
