/** The gangs that wait for their planned starts, as the master tells them. */
import { useMemo } from "preact/hooks";
import { get } from "../api/client";
import type { WaitingPlan, WaitingPlans } from "../api/types";
import { anyJob, useResource } from "../live/resource";
import type { Filter } from "./feed";

const EVERY_MS = 10_000;
const NONE: WaitingPlan[] = [];

/** Of one user alone none is shown: a plan does not say whose it is. */
export function usePlans({ job, user, worker }: Filter): WaitingPlan[] {
  const { data } = useResource("plans", (signal) => get<WaitingPlans>("/plans", {}, signal), anyJob, EVERY_MS);
  return useMemo(() => {
    const found = data?.plans.filter(
      (plan) => !user && (!job || plan.job === job) && (!worker || plan.machines.includes(worker)),
    );
    return found?.length ? found : NONE;
  }, [data, job, user, worker]);
}
