/** One frame of the chart: everything that the painters need to know. */
import type { Scheme } from "./colours";
import type { Layout } from "./layout";
import type { Scene } from "./scene";
import type { Window } from "./window";

export interface Picture {
  scene: Scene;
  layout: Layout;
  window: Window;
  now: number;
  scrolled: number;
  scheme: Scheme;
  /** The bar under the pointer: others of its job stand out. */
  chosen: number | null;
}
