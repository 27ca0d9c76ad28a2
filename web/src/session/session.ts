/** Who is signed in, and what they may do. */
import { computed, signal } from "@preact/signals";
import { ask, get, onOutcome, post, Problem } from "../api/client";
import type { Whoami } from "../api/types";
import { watchCost } from "../live/budget";
import { startListening, stopListening, watchRequests, watchSilence, watchVisibility } from "../live/changes";
import { forgetAll } from "../live/resource";

/** The caller; undefined: unknown yet; null: signed out. */
export const caller = signal<Whoami | null | undefined>(undefined);
/** Why somebody who was signed in no longer is; null: they wished it, or nobody was. */
export const parting = signal<Problem | null>(null);
/** Why it is not known: the master is away. */
export const trouble = signal<Problem | null>(null);

export const isAdmin = computed(() => caller.value?.role === "admin");
export const maySubmit = computed(() => caller.value?.role === "admin" || caller.value?.role === "user");

/** Users steer what is theirs, admins everything. */
export const maySteer = (user: string): boolean => isAdmin.value || (maySubmit.value && caller.value?.name === user);

const ASK_AGAIN_MS = 1500;
const UNAUTHORIZED = 401;

export function beginSession(): void {
  onOutcome((problem) => {
    if (problem?.status === UNAUTHORIZED) leave(problem);
  });
  watchCost();
  watchRequests();
  watchVisibility();
  watchSilence();
  void lookWhoItIs();
}

export async function signIn(token: string): Promise<void> {
  enter(await post<Whoami>("/session", { token }));
}

export async function signOut(): Promise<void> {
  await ask("DELETE", "/session");
  leave();
}

async function lookWhoItIs(): Promise<void> {
  try {
    const who = await get<Whoami | null>("/session");
    if (who) enter(who);
    else leave();
  } catch (error) {
    if (!(error instanceof Problem) || error.status === UNAUTHORIZED) return;
    trouble.value = error;
    setTimeout(() => void lookWhoItIs(), ASK_AGAIN_MS);
  }
}

function enter(who: Whoami): void {
  trouble.value = parting.value = null;
  forgetAll();
  caller.value = who;
  startListening();
}

function leave(why: Problem | null = null): void {
  if (caller.value || !why) parting.value = why; // what is refused at the door is told there
  stopListening();
  forgetAll();
  trouble.value = null;
  caller.value = null;
}
