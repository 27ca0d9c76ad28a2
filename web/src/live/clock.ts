/** The current time for views: it ticks once a second while the page is visible. */
import { signal } from "@preact/signals";

export const now = signal(Date.now() / 1000);

setInterval(() => {
  if (!document.hidden) now.value = Date.now() / 1000;
}, 1000);
