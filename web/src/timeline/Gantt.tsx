/** The chart as a part of a page: it follows what happens, fits its place, and says what is under the pointer. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { Problem } from "../api/client";
import { count, plural } from "../text/human";
import type { Chart } from "./chart";
import { mount, type Pointed, type Wishes } from "./mount";
import { useNotes } from "./notes";
import { usePlans } from "./plans";
import type { Sums } from "./scene/selection";
import { SumsNote } from "./SumsNote";
import { Tooltip } from "./Tooltip";
import type { Window } from "./scene/window";

const KEYS =
  "Arrow keys move it, plus and minus zoom, L follows the present, " +
  "N and P go from attempt to attempt, Enter opens one, S sums up what is in view.";

type Optional = "filter" | "past" | "hasWheel";

interface Props extends Omit<Wishes, Optional>, Partial<Pick<Wishes, Optional>> {
  onChart?: (chart: Chart) => void;
  onLook?: (window: Window, isLive: boolean) => void;
}

export function Gantt({ filter = {}, hasWheel = false, past = null, span, maxHeight, onChart, onLook }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const place = useRef<HTMLDivElement>(null);
  const [chart, setChart] = useState<Chart | null>(null);
  const [pointed, setPointed] = useState<Pointed | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [shown, setShown] = useState({ bars: -1, isTruncated: false });
  const [sums, setSums] = useState<Sums | null>(null);
  const notes = useNotes();
  const plans = usePlans(filter);

  useEffect(() => {
    const wishes = { filter, span, past, maxHeight, hasWheel };
    const mounted = mount(place.current!, canvas.current!, wishes, {
      onBars: (bars, isTruncated) => setShown({ bars, isTruncated }),
      onProblem: setProblem,
      onPoint: setPointed,
      onSelect: setSums,
      onLook: (window, isLive) => onLook?.(window, isLive),
    });
    setChart(mounted.chart);
    onChart?.(mounted.chart);
    return mounted.unmount;
  }, [filter.job, filter.user, filter.worker]);

  useEffect(() => chart?.setNotes(notes), [chart, notes]);
  useEffect(() => chart?.setPlans(plans), [chart, plans]);

  return (
    <div class="gantt" ref={place}>
      <canvas
        ref={canvas}
        tabIndex={0}
        role="img"
        class={hasWheel ? "takes-touch" : ""}
        aria-label={`Timeline of ${Math.max(0, shown.bars)} attempts${planned(plans.length)}. ${KEYS}`}
      />
      {chart && sums && <SumsNote sums={sums} onGone={() => chart.select(null)} />}
      {chart && pointed && <Tooltip chart={chart} at={pointed} />}
      {shown.bars < 0 && !problem && <p class="gantt-note">Loading attempts …</p>}
      {shown.bars === 0 && !plans.length && <p class="gantt-note">No attempts in this window.</p>}
      {shown.isTruncated && (
        <p class="gantt-note bottom">Only the latest {count(shown.bars)} attempts are shown: zoom in for all.</p>
      )}
      {problem && !problem.isAway && (
        <p class="gantt-note" role="alert">
          {problem.message}
        </p>
      )}
    </div>
  );
}

const planned = (many: number): string => (many ? ` and ${plural(many, "planned start")}` : "");
