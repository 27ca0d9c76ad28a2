/** Brushes that paint the chart: a canvas for the screen and PNG, SVG text for a file. */

/** Rectangles, flat: x, y, width, height of each. */
export type Rects = number[];

export interface TextStyle {
  align?: "left" | "right" | "center";
  size?: number;
  isStrong?: boolean;
}

export interface Brush {
  rects(colour: string, rects: Rects, opacity?: number): void;
  /** Slanted lines within the rectangles. */
  hatch(colour: string, rects: Rects): void;
  outlines(colour: string, rects: Rects): void;
  line(colour: string, x1: number, y1: number, x2: number, y2: number): void;
  /** `y` is the middle of the line. */
  text(colour: string, text: string, x: number, y: number, style?: TextStyle): void;
  /** Paint within a rectangle only, until the next clip; null: everywhere. */
  clip(rect: readonly [number, number, number, number] | null): void;
}

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
export const HATCH_PX = 5;
