import { type Brush, FONT, HATCH_PX, type Rects, type TextStyle } from "./brush";

/** Few changes of colour, plain rectangles: quick where software draws. */
export class CanvasBrush implements Brush {
  private readonly patterns = new Map<string, CanvasPattern>();

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly scale: number,
  ) {}

  /** Begin anew: all is transparent. */
  begin(width: number, height: number): void {
    this.context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    this.context.clearRect(0, 0, width, height);
  }

  rects(colour: string, rects: Rects, opacity = 1): void {
    this.context.globalAlpha = opacity;
    this.context.fillStyle = colour;
    this.fill(rects);
    this.context.globalAlpha = 1;
  }

  hatch(colour: string, rects: Rects): void {
    this.context.fillStyle = this.pattern(colour);
    this.fill(rects);
  }

  outlines(colour: string, rects: Rects): void {
    this.context.strokeStyle = colour;
    this.context.lineWidth = 1;
    for (let at = 0; at < rects.length; at += 4) {
      this.context.strokeRect(rects[at]! + 0.5, rects[at + 1]! + 0.5, rects[at + 2]! - 1, rects[at + 3]! - 1);
    }
  }

  line(colour: string, x1: number, y1: number, x2: number, y2: number): void {
    this.context.strokeStyle = colour;
    this.context.lineWidth = 1;
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.lineTo(x2, y2);
    this.context.stroke();
  }

  text(
    colour: string,
    text: string,
    x: number,
    y: number,
    { align = "left", size = 11, isStrong }: TextStyle = {},
  ): void {
    this.context.fillStyle = colour;
    this.context.font = `${isStrong ? "600 " : ""}${size}px ${FONT}`;
    this.context.textAlign = align;
    this.context.textBaseline = "middle";
    this.context.fillText(text, x, y);
  }

  clip(rect: readonly [number, number, number, number] | null): void {
    this.context.restore();
    this.context.save();
    if (!rect) return;
    this.context.beginPath();
    this.context.rect(...rect);
    this.context.clip();
  }

  private fill(rects: Rects): void {
    for (let at = 0; at < rects.length; at += 4) {
      this.context.fillRect(rects[at]!, rects[at + 1]!, rects[at + 2]!, rects[at + 3]!);
    }
  }

  private pattern(colour: string): CanvasPattern {
    let pattern = this.patterns.get(colour);
    if (!pattern) {
      pattern = this.context.createPattern(tile(colour, this.scale), "repeat")!;
      pattern.setTransform(new DOMMatrix().scale(1 / this.scale));
      this.patterns.set(colour, pattern);
    }
    return pattern;
  }
}

function tile(colour: string, scale: number): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  const side = (canvas.width = canvas.height = Math.round(HATCH_PX * scale));
  const context = canvas.getContext("2d")!;
  context.strokeStyle = colour;
  context.lineWidth = scale;
  for (const shift of [-side, 0, side]) {
    context.moveTo(shift, side);
    context.lineTo(shift + side, 0);
  }
  context.stroke();
  return canvas;
}
