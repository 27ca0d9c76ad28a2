/** Values over time, by uPlot: one cursor, a legend that tells the values under it. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { schemeOf } from "../timeline/paint/colours";
import { moment } from "../text/human";
import { withGaps } from "./gaps";
import { theme } from "./theme";

type Tone = "spare" | "offered" | "used" | "frozen";

export interface Curve {
  name: string;
  values: number[];
  tone: Tone;
}

interface Props {
  at: number[];
  /** Between two points; where there is more, nothing was known. */
  every_s: number;
  /** How far back the axis goes. */
  span_s: number;
  curves: Curve[];
  height?: number;
}

export function Curves({ at, every_s, span_s, curves, height = 190 }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const shown = theme.value;
  const data = withGaps(
    at,
    curves.map((curve) => curve.values),
    every_s,
  ) as uPlot.AlignedData;

  useEffect(() => {
    const parent = place.current!;
    const width = () => Math.max(200, parent.clientWidth);
    plot.current = new uPlot({ ...options(curves, shown, span_s), width: width(), height }, data, parent);
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: width(), height }));
    observer.observe(parent);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
    };
  }, [shown, curves.map((curve) => curve.name).join(), span_s]);

  useEffect(() => plot.current?.setData(data), [at]);

  const newest = curves.map((curve) => `${curve.name} ${curve.values.at(-1)?.toFixed(1)}`).join(", ");
  return <div class="curves" ref={place} role="img" aria-label={`Curves over time; at their end: ${newest}`} />;
}

function options(curves: Curve[], shown: "light" | "dark", span_s: number): Omit<uPlot.Options, "width" | "height"> {
  const scheme = schemeOf(shown);
  const axis = {
    stroke: scheme.faint,
    grid: { stroke: scheme.line, width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  return {
    cursor: { drag: { x: true, y: false }, points: { size: 5 } },
    scales: {
      x: { range: () => [Date.now() / 1000 - span_s, Date.now() / 1000] },
      y: { range: (_, __, most) => [0, Math.max(1, most * 1.05)] },
    },
    axes: [
      { ...axis, size: 26, values: clockLabels },
      { ...axis, size: 44 },
    ],
    hooks: { ready: [showNewest], setData: [showNewest], setCursor: [(plot) => plot.cursor.idx ?? showNewest(plot)] },
    series: [{ label: "at", value: (_, at) => moment(at) }, ...curves.map((curve) => seriesOf(curve, shown))],
  };
}

function seriesOf(curve: Curve, shown: "light" | "dark"): uPlot.Series {
  const scheme = schemeOf(shown);
  const colour = { spare: scheme.jobs[2]!, offered: scheme.faint, used: scheme.jobs[0]!, frozen: scheme.jobs[1]! }[
    curve.tone
  ];
  const series: uPlot.Series = {
    label: curve.name,
    stroke: colour,
    width: 1.5,
    points: { show: false },
    value: (_, value) => value?.toFixed(1) ?? "–",
  };
  if (curve.tone === "used") series.fill = `${colour}33`;
  if (curve.tone === "offered") series.dash = [4, 3];
  return series;
}

/** Unless the pointer is on a time, the legend shows the newest values. */
const showNewest = (plot: uPlot): void => plot.setLegend({ idx: plot.data[0].length - 1 });

const clockLabels = (_: uPlot, times: number[], __: number, ___: number, step: number): string[] =>
  times.map((time) => labelOf(new Date(time * 1000), step));

function labelOf(date: Date, step: number): string {
  const isDay = step >= 86400 || (date.getHours() === 0 && date.getMinutes() === 0);
  if (isDay) return date.toLocaleDateString(undefined, { day: "numeric", month: "short" });
  return `${String(date.getHours()).padStart(2, "0")}:${String(date.getMinutes()).padStart(2, "0")}`;
}
