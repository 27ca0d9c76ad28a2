import { expect, test } from "vitest";
import { Budget } from "../src/live/budget";

test("what is read again stays within the budget", () => {
  const budget = new Budget();
  let now = 0;
  let bytes = 0;
  while (now < 100_000) {
    budget.spend(80_000, now);
    bytes += 80_000;
    now += Math.max(700, budget.waitMs(now));
  }
  expect(bytes / 100).toBeLessThan(33_000);
});

test("small answers do not wait, and the largest not for ever", () => {
  const budget = new Budget();
  budget.spend(4_000, 0);
  expect(budget.waitMs(0)).toBe(0);
  budget.spend(5_000_000, 1000);
  expect(budget.waitMs(1000)).toBe(15_000);
  expect(budget.waitMs(200_000)).toBe(0);
});
