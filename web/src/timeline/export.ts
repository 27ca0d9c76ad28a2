/** The chart as a picture in a file: what is on the screen, on a light ground. */
import { CanvasBrush } from "./paint/canvasBrush";
import type { Chart } from "./chart";
import { schemeOf } from "./paint/colours";
import { paint } from "./paint/paint";
import { SvgBrush } from "./paint/svgBrush";

const PNG_SCALE = 2;

export async function savePng(chart: Chart): Promise<void> {
  const { width, height } = chart.layout;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width * PNG_SCALE, height * PNG_SCALE];
  const scheme = schemeOf("light");
  const brush = new CanvasBrush(canvas.getContext("2d")!, PNG_SCALE);
  brush.begin(width, height);
  brush.rects(scheme.ground, [0, 0, width, height]);
  paint({ ...chart.picture(scheme), chosen: null, selection: null }, brush);
  canvas.toBlob((blob) => blob && save(blob, `${nameOf(chart)}.png`), "image/png");
}

export function saveSvg(chart: Chart): void {
  const { width, height } = chart.layout;
  const scheme = schemeOf("light");
  const brush = new SvgBrush();
  paint({ ...chart.picture(scheme), chosen: null, selection: null }, brush);
  save(new Blob([brush.finish(width, height, scheme.ground)], { type: "image/svg+xml" }), `${nameOf(chart)}.svg`);
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function nameOf(chart: Chart): string {
  return `loopline-${new Date(chart.window.since * 1000).toISOString().slice(0, 19).replaceAll(":", "")}`;
}
