/**
 * What looking may cost: a page that is left open pulls at most this much from the master, however large the grid is.
 *
 * What came over the wire is a debt that is paid off at a constant rate; what is read again waits until it is paid.
 * What the user asks for, another view or another page of a list, is read at once.
 */
const RATE_BYTES_S = 30_000;
/** What comes at once, without a wait. */
const FREE_BYTES = 30_000;
/** After the longest answer the view is not older than this. */
const LONGEST_WAIT_MS = 15_000;

export class Budget {
  private debt = 0;
  private at = 0;

  spend(bytes: number, nowMs: number): void {
    this.debt = this.left(nowMs) + bytes;
    this.at = nowMs;
  }

  /** For how long what is read again has to wait. */
  waitMs(nowMs: number): number {
    const over = this.left(nowMs) - FREE_BYTES;
    return Math.min(LONGEST_WAIT_MS, Math.max(0, (over / RATE_BYTES_S) * 1000));
  }

  private left(nowMs: number): number {
    return Math.max(0, this.debt - ((nowMs - this.at) / 1000) * RATE_BYTES_S);
  }
}

const budget = new Budget();

export const budgetWaitMs = (): number => budget.waitMs(performance.now());

/** The browser tells what came over the wire; streams it tells at their end, and their news are small. */
export function watchCost(): void {
  new PerformanceObserver((seen) => {
    for (const entry of seen.getEntriesByType("resource") as PerformanceResourceTiming[])
      if (entry.initiatorType === "fetch" && !entry.name.includes("/log"))
        budget.spend(entry.transferSize, performance.now());
  }).observe({ type: "resource" });
}
