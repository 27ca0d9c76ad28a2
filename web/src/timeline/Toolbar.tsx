/** Toolbar of the chart: move, zoom, choose the window, download a file. */
import { useEffect, useRef } from "preact/hooks";
import { fromInput, toInput } from "../text/human";
import { Button } from "../ui/Button";
import type { Chart } from "./chart";
import { url } from "../api/client";
import { savePng, saveSvg } from "./export";
import { type Filter, MOST_BARS } from "./feed";
import { spanOf, type Window } from "./scene/window";

const SPANS: [string, number][] = [
  ["5 min", 300],
  ["15 min", 900],
  ["1 h", 3600],
  ["6 h", 6 * 3600],
  ["24 h", 86400],
  ["7 d", 7 * 86400],
];

interface Props {
  chart: Chart;
  window: Window;
  isLive: boolean;
  filter: Filter;
  onDense: () => void;
}

export function Toolbar({ chart, window, isLive, filter, onDense }: Props) {
  const pan = (share: number) => chart.pan(share * (chart.layout.width - chart.layout.gutter));
  const span = spanOf(window);
  return (
    <div class="toolbar" role="toolbar" aria-label="Timeline">
      <div class="buttons joined">
        <Button label="Earlier" onClick={() => pan(-0.3)}>
          ‹
        </Button>
        <Button label="Zoom out" onClick={() => chart.zoom(1.6)}>
          −
        </Button>
        <Button label="Zoom in" onClick={() => chart.zoom(1 / 1.6)}>
          +
        </Button>
        <Button label="Later" onClick={() => pan(0.3)}>
          ›
        </Button>
      </div>
      <Button isPressed={isLive} label="Live: follow the present" onClick={() => chart.follow()}>
        Live
      </Button>
      <div class="buttons joined" role="group" aria-label="Length of the window">
        {SPANS.map(([name, seconds]) => (
          <Button key={name} isPressed={isLive && Math.abs(span - seconds) < 1} onClick={() => chart.follow(seconds)}>
            {name}
          </Button>
        ))}
      </div>
      <Button
        isPressed={chart.layout.isDense}
        label="Dense: one row a worker, how full it is, in the colour of a job that it ran"
        onClick={onDense}
      >
        Dense
      </Button>
      <Button label="Sums of what is in view; Shift and drag: of a part of it" onClick={() => chart.selectAll()}>
        Sums
      </Button>
      <Moments chart={chart} window={window} />
      <div class="buttons joined end" role="group" aria-label="Save">
        <Button label="Save as PNG" onClick={() => void savePng(chart)}>
          PNG
        </Button>
        <Button label="Save as SVG" onClick={() => saveSvg(chart)}>
          SVG
        </Button>
        <a
          class="button plain"
          href={traceUrl(window, filter)}
          download
          title="Trace events, for Perfetto or speedscope"
        >
          Trace
        </a>
      </div>
    </div>
  );
}

/** Chrome trace-event JSON, as the master writes it. */
const traceUrl = ({ since, until }: Window, { user, worker }: Filter): string =>
  url("/timeline/trace", { since, until, user, worker, limit: MOST_BARS });

/** Start and end of the window; they follow the chart unless the user edits them. */
function Moments({ chart, window }: { chart: Chart; window: Window }) {
  const since = useRef<HTMLInputElement>(null);
  const until = useRef<HTMLInputElement>(null);

  useEffect(() => {
    for (const [input, time] of [
      [since, window.since],
      [until, window.until],
    ] as const) {
      if (input.current && document.activeElement !== input.current) input.current.value = toInput(time);
    }
  }, [Math.round(window.since / 60), Math.round(window.until / 60)]);

  function apply(): void {
    const [from, to] = [fromInput(since.current!.value), fromInput(until.current!.value)];
    if (from !== null && to !== null && to > from) chart.look({ since: from, until: to });
  }

  return (
    <span class="moments">
      <label>
        from <input type="datetime-local" ref={since} onChange={apply} />
      </label>
      <label>
        to <input type="datetime-local" ref={until} onChange={apply} />
      </label>
    </span>
  );
}
