import { expect, test } from "vitest";
import { inSeconds } from "../src/api/times";

test("times of the master are seconds, and what users wrote stays as it is", () => {
  const written = "2027-01-31T08:15:30.250000Z";
  const answer = {
    items: [{ submitted_at: written, name: written, quarantine: { until: written }, ended_at: null }],
    spec: { env: { x_at: written } },
    parameters: { start_at: written },
  };
  expect(inSeconds(answer)).toEqual({
    items: [{ submitted_at: 1801383330.25, name: written, quarantine: { until: 1801383330.25 }, ended_at: null }],
    spec: { env: { x_at: written } },
    parameters: { start_at: written },
  });
});
