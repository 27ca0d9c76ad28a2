/** The master and its users, as the views read them. */
import { get } from "../api/client";
import type { LimitUse, MasterView, SharesView, UserCost, UserShare } from "../api/types";
import { anyJob, type Resource, useResource } from "../live/resource";

const EVERY_MS = 10_000;
/** From this part of a limit on its user is near it. */
const NEAR = 0.8;

export const useMaster = (): Resource<MasterView> =>
  useResource("master", (signal) => get<MasterView>("/master", {}, signal), anyJob, EVERY_MS);

export const useShares = (): Resource<SharesView> =>
  useResource("shares", (signal) => get<SharesView>("/shares", {}, signal), anyJob, EVERY_MS);

/** A user with what they cost and what they may have. */
export interface User {
  name: string;
  cost: UserCost | undefined;
  share: UserShare | undefined;
}

/** All users of whom something is known; those that cost most come first. */
export function usersOf(costs: readonly UserCost[], shares: readonly UserShare[]): User[] {
  const names = new Set([...costs.map(({ user }) => user), ...shares.map(({ user }) => user)]);
  names.delete("");
  return [...names].map((name) => ({
    name,
    cost: costs.find(({ user }) => user === name),
    share: shares.find(({ user }) => user === name),
  }));
}

export const isNear = ({ used, allowed }: LimitUse): boolean => used >= NEAR * allowed;

/** Seconds until the disk is full at this growth; null: it does not grow, or nobody can say yet. */
export function fullIn_s({ disk_free_bytes, stored_a_day }: MasterView["sizes"]): number | null {
  return stored_a_day && stored_a_day > 0 ? (disk_free_bytes / stored_a_day) * 86_400 : null;
}
