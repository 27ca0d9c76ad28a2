/** Planned starts of gangs as they are drawn: a piece on each slot that they are going to take. */
import type { WaitingPlan } from "../../api/types";
import { type Row, pack } from "./rows";

/** Where a gang is planned to run, as far as one row of the chart shows it. */
export interface PlannedPiece {
  plan: WaitingPlan;
  row: number; // place in the scene's rows
  start: number;
  end: number; // by its limit
  isFirst: boolean; // the piece beside which is said that it moved
}

/** Pieces for all plans with a start, on the workers that have rows. `rowsOf`: place of a worker's first row, and count. */
export function piecesOf(
  plans: readonly WaitingPlan[],
  rowsOf: (worker: string) => { firstRow: number; rowCount: number } | undefined,
): PlannedPiece[] {
  const byWorker = new Map<string, WaitingPlan[]>();
  for (const plan of plans) {
    if (plan.start_at === null) continue;
    for (const name of plan.machines) byWorker.set(name, [...(byWorker.get(name) ?? []), plan]);
  }
  return [...byWorker].flatMap(([name, own]) => {
    const rows = rowsOf(name);
    return rows ? piecesOn(name, own, rows) : [];
  });
}

function piecesOn(
  name: string,
  plans: WaitingPlan[],
  { firstRow, rowCount }: { firstRow: number; rowCount: number },
): PlannedPiece[] {
  const slots = plans
    .flatMap((plan) => Array<WaitingPlan>(plan.slots).fill(plan))
    .sort((a, b) => a.start_at! - b.start_at! || a.job - b.job);
  const lanes = pack(
    slots.map((plan) => plan.start_at!),
    slots.map(endOf),
  );
  return slots.map((plan, at) => ({
    plan,
    row: firstRow + Math.min(lanes[at]!, rowCount - 1),
    start: plan.start_at!,
    end: endOf(plan),
    isFirst: plan.machines[0] === name && slots.indexOf(plan) === at,
  }));
}

export const endOf = (plan: WaitingPlan): number => plan.start_at! + plan.limit_s;

/** The piece at a time in a row. */
export function pieceAt(
  pieces: readonly PlannedPiece[],
  rows: readonly Row[],
  row: Row,
  time: number,
): PlannedPiece | undefined {
  return pieces.find((one) => rows[one.row] === row && one.start <= time && time <= one.end);
}
