/** Rectangles by colour, so that the brush changes its colour seldom. */
import type { Brush, Rects } from "./brush";

export class Batch {
  private readonly byColour = new Map<string, Rects>();

  add(colour: string, x: number, y: number, width: number, height: number): void {
    let rects = this.byColour.get(colour);
    if (!rects) this.byColour.set(colour, (rects = []));
    rects.push(x, y, width, height);
  }

  paint(put: (colour: string, rects: Rects) => void): void {
    this.byColour.forEach((rects, colour) => put(colour, rects));
  }

  rects(brush: Brush, opacity = 1): void {
    this.paint((colour, rects) => brush.rects(colour, rects, opacity));
  }
}
