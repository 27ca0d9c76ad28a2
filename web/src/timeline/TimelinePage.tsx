import { useEffect, useRef, useState } from "preact/hooks";
import { search, setWords, useWord } from "../router";
import type { Chart } from "./chart";
import { Finder, useTimelineFilter } from "./Finder";
import { Gantt } from "./Gantt";
import { Legend } from "./Legend";
import { Toolbar } from "./Toolbar";
import { spanOf, type Window } from "./scene/window";

const SPAN_S = 900;
const SETTLE_MS = 300;

/** The timeline page: attempts now, and in any window of the past. The address names the window, so it can be shared. */
export function TimelinePage() {
  const filter = useTimelineFilter();
  const [rows, setRows] = useWord("rows");
  const from = readAddress(search.value); // the chart begins there, and again when it shows other attempts
  const [chart, setChart] = useState<Chart | null>(null);
  const [look, setLook] = useState<{ window: Window; isLive: boolean } | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);

  function onLook(window: Window, isLive: boolean): void {
    setLook({ window, isLive });
    clearTimeout(timer.current);
    timer.current = setTimeout(() => writeAddress(window, isLive), SETTLE_MS);
  }

  const density = rows === "slots" || rows === "workers" ? rows : null;
  useEffect(() => chart?.setDensity(density), [chart, density]);

  return (
    <div class="timeline-page">
      <h1 class="unseen">Timeline</h1>
      {chart && look && (
        <Toolbar
          chart={chart}
          window={look.window}
          isLive={look.isLive}
          filter={filter}
          onDense={() => setRows(chart.layout.isDense ? "slots" : "workers")}
        />
      )}
      <Finder />
      <Legend />
      <Gantt
        filter={filter}
        span={from.span}
        past={from.past}
        maxHeight={null}
        hasWheel
        onChart={setChart}
        onLook={onLook}
      />
    </div>
  );
}

function readAddress(query: string): { span: number; past: Window | null } {
  const given = new URLSearchParams(query);
  const [since, until, span] = ["since", "until", "span"].map((name) => Number(given.get(name)));
  const past = since && until && until > since ? { since, until } : null;
  return { span: span && span > 0 ? span : SPAN_S, past };
}

function writeAddress(window: Window, isLive: boolean): void {
  if (location.pathname !== "/timeline") return;
  const past = { span: null, since: window.since.toFixed(1), until: window.until.toFixed(1) };
  const live = { span: String(Math.round(spanOf(window))), since: null, until: null };
  setWords(isLive ? live : past, { replace: true });
}
