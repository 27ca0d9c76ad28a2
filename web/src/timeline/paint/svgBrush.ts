import { type Brush, FONT, HATCH_PX, type Rects, type TextStyle } from "./brush";

/** Writes SVG: one path for all rectangles of a colour, so that a file of 10,000 bars stays small. */
export class SvgBrush implements Brush {
  private readonly parts: string[] = [];
  private readonly definitions: string[] = [];
  private readonly hatches = new Map<string, string>();
  private isClipped = false;

  rects(colour: string, rects: Rects, opacity = 1): void {
    const faint = opacity < 1 ? ` fill-opacity="${opacity}"` : "";
    if (rects.length) this.parts.push(`<path fill="${colour}"${faint} d="${pathOf(rects)}"/>`);
  }

  hatch(colour: string, rects: Rects): void {
    if (rects.length) this.parts.push(`<path fill="url(#${this.pattern(colour)})" d="${pathOf(rects)}"/>`);
  }

  outlines(colour: string, rects: Rects): void {
    if (rects.length) this.parts.push(`<path fill="none" stroke="${colour}" d="${pathOf(rects, 0.5)}"/>`);
  }

  line(colour: string, x1: number, y1: number, x2: number, y2: number): void {
    this.parts.push(`<path stroke="${colour}" d="M${short(x1)} ${short(y1)}L${short(x2)} ${short(y2)}"/>`);
  }

  text(
    colour: string,
    text: string,
    x: number,
    y: number,
    { align = "left", size = 11, isStrong }: TextStyle = {},
  ): void {
    const anchor = { left: "start", right: "end", center: "middle" }[align];
    const weight = isStrong ? ' font-weight="600"' : "";
    const place = `x="${short(x)}" y="${short(y)}" text-anchor="${anchor}" dominant-baseline="central"`;
    this.parts.push(`<text ${place} font-size="${size}"${weight} fill="${colour}">${escaped(text)}</text>`);
  }

  clip(rect: readonly [number, number, number, number] | null): void {
    if (this.isClipped) this.parts.push("</g>");
    this.isClipped = rect !== null;
    if (!rect) return;
    const id = `clip${this.definitions.length}`;
    this.definitions.push(`<clipPath id="${id}"><path d="${pathOf([...rect])}"/></clipPath>`);
    this.parts.push(`<g clip-path="url(#${id})">`);
  }

  finish(width: number, height: number, ground: string): string {
    this.clip(null);
    const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
    const family = escaped(FONT).replaceAll('"', "'");
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="${family}">` +
      `<defs>${this.definitions.join("")}</defs><rect width="100%" height="100%" fill="${ground}"/>` +
      `${this.parts.join("\n")}</svg>\n`
    );
  }

  private pattern(colour: string): string {
    let id = this.hatches.get(colour);
    if (!id) {
      id = `hatch${this.hatches.size}`;
      this.hatches.set(colour, id);
      const side = HATCH_PX;
      const slants = [-side, 0, side].map((shift) => `M${shift} ${side}L${shift + side} 0`).join("");
      this.definitions.push(
        `<pattern id="${id}" width="${side}" height="${side}" patternUnits="userSpaceOnUse">` +
          `<path stroke="${colour}" d="${slants}"/></pattern>`,
      );
    }
    return id;
  }
}

function pathOf(rects: Rects, inset = 0): string {
  let path = "";
  for (let at = 0; at < rects.length; at += 4) {
    const [x, y, width, height] = [
      rects[at]! + inset,
      rects[at + 1]! + inset,
      rects[at + 2]! - 2 * inset,
      rects[at + 3]! - 2 * inset,
    ];
    path += `M${short(x)} ${short(y)}h${short(width)}v${short(height)}h${short(-width)}z`;
  }
  return path;
}

const short = (number: number): string => String(Math.round(number * 10) / 10);

const escaped = (text: string): string =>
  text.replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]!);
