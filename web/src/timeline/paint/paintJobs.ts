/** Paints a row for each job below the workers, by arrival: its run, and in black its hold. */
import type { Brush } from "./brush";
import { colourOf } from "./colours";
import { jobsShown, type Scale } from "../scene/layout";
import type { Picture } from "./picture";

const NARROW_PX = 100; // a phone's gutter

export function paintJobs({ scene, layout, scheme, now }: Picture, scale: Scale, brush: Brush): void {
  if (!layout.jobCount) return;
  const bottom = layout.height - layout.jobsTop + 2;
  const name = layout.gutter < NARROW_PX ? "jobs" : "one row per job";
  brush.text(scheme.faint, name, layout.gutter - 10, layout.jobsTop + 5, { align: "right", size: 10 });
  brush.line(scheme.strong, 0, layout.jobsTop - 11.5, layout.width, layout.jobsTop - 11.5);
  brush.clip([layout.gutter, layout.jobsTop - 2, layout.width - layout.gutter, bottom]);
  const thin = Math.max(1, Math.round(layout.jobPx / 3));
  jobsShown(scene, layout).forEach((row, place) => {
    const y = layout.jobsTop + place * layout.jobPx;
    const height = Math.max(2, layout.jobPx - 2);
    const [left, right] = [scale.x(row.since), scale.x(Math.min(row.until, now))];
    brush.rects(colourOf(scheme, row.job), [left, y, Math.max(1, right - left), height]);
    for (const { since, until } of row.holds) {
      const [from, to] = [scale.x(since), scale.x(until ?? now)];
      brush.rects(scheme.ink, [from, y + (height - thin) / 2, Math.max(1, to - from), thin]);
    }
  });
}
