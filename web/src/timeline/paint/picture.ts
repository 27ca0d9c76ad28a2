/** One frame of the chart: everything that the painters need to know. */
import type { Scheme } from "./colours";
import type { Layout } from "../scene/layout";
import type { Selection } from "../scene/selection";
import type { Scene } from "../scene/scene";
import type { Window } from "../scene/window";

export interface Picture {
  scene: Scene;
  layout: Layout;
  window: Window;
  now: number;
  scrolled: number;
  scheme: Scheme;
  /** The bar under the pointer: others of its job stand out. */
  chosen: number | null;
  selection: Selection | null;
}
