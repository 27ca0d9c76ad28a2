import { colourOf, schemeOf } from "../timeline/paint/colours";
import { theme } from "../ui/theme";

/** The job's colour on the timeline. */
export function Swatch({ job }: { job: number }) {
  return <span class="swatch" style={{ backgroundColor: colourOf(schemeOf(theme.value), job) }} />;
}
