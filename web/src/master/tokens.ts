/** Tokens in words. */
import type { Role, TokenCreated, TokenView } from "../api/types";

export type TokenState = "valid" | "expired" | "revoked";

export function stateOf({ revoked_at, expires_at }: TokenView, now: number): TokenState {
  if (revoked_at) return "revoked";
  return expires_at && expires_at <= now ? "expired" : "valid";
}

/** Roles with what each may do, the narrowest first. */
export const ROLES: [Role, string][] = [
  ["scraper", "reads /metrics and nothing else"],
  ["reader", "looks"],
  ["user", "submits jobs, and controls their own"],
  ["worker", "runs tasks, under any name"],
  ["admin", "may do everything"],
];

/** What a person types to log in by a new token, as the command line prints it; null: it is for a program. */
export function lineOf({ role, secret, address, fingerprint }: TokenCreated): string | null {
  if (role === "worker" || role === "scraper" || !address) return null;
  return `loopline login ${address}#${secret}${fingerprint ? `.${fingerprint}` : ""}`;
}
