/**
 * A job's colour follows from its number, so it is the same wherever and whenever it is drawn.
 *
 * The eight colours of each theme were searched for by program: with normal sight and with each kind of
 * colour-blindness (Machado et al. 2009) any two are at least 17 apart in CIELAB, and those of neighbours in number
 * at least 26.
 */

export interface Scheme {
  ground: string;
  stripe: string;
  line: string;
  strong: string;
  ink: string;
  faint: string;
  owner: string;
  lost: string;
  bad: string;
  now: string;
  /** Of text on bars: on light ones and on dark ones. */
  onBar: readonly [onLight: string, onDark: string];
  jobs: readonly string[];
}

const LIGHT: Scheme = {
  ground: "#ffffff",
  stripe: "#f6f7f8",
  line: "#e3e6ea",
  strong: "#c3c9d1",
  ink: "#1b222b",
  faint: "#5b6673",
  owner: "#f3e3bd",
  lost: "#a4abb4",
  bad: "#b3261e",
  now: "#b3261e",
  onBar: ["#10151b", "#ffffff"],
  jobs: ["#7590cb", "#7c6613", "#4c7055", "#bf9449", "#704f98", "#36aba5", "#72365e", "#9c9e76"],
};

const DARK: Scheme = {
  ground: "#12171d",
  stripe: "#171d24",
  line: "#262e37",
  strong: "#3d4854",
  ink: "#e4e8ed",
  faint: "#97a2ae",
  owner: "#4a3d1c",
  lost: "#69737e",
  bad: "#ef7b72",
  now: "#ef7b72",
  onBar: ["#0e1216", "#ffffff"],
  jobs: ["#4495e1", "#9d8433", "#4d895e", "#eecf7a", "#7f779d", "#d8baf7", "#df8ea7", "#a6aa6b"],
};

export const schemeOf = (theme: "light" | "dark"): Scheme => (theme === "dark" ? DARK : LIGHT);

export function colourOf(scheme: Scheme, job: number): string {
  return scheme.jobs[(job - 1) % scheme.jobs.length] ?? scheme.jobs[0]!;
}

/** The colour of text on a bar that gives more contrast. */
export function textOn(scheme: Scheme, colour: string): string {
  return scheme.onBar[luminanceOf(colour) > 0.18 ? 0 : 1];
}

/** Relative, as WCAG has it. */
function luminanceOf(colour: string): number {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const share = parseInt(colour.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}
