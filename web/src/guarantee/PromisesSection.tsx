import { get } from "../api/client";
import type { ForecastReport } from "../api/types";
import { anyJob, useResource } from "../live/resource";
import { Link } from "../router";
import { count, duration, moment, percent, plural } from "../text/human";
import { Section } from "../ui/Section";

type Plans = NonNullable<ForecastReport["plans"]>;

/** Were gangs started when it was promised? Nothing is shown where none has had a plan. */
export function PromisesSection() {
  const { data } = useResource("forecasts", (signal) => get<ForecastReport>("/forecasts", {}, signal), anyJob);
  const plans = data?.plans;
  if (!plans || !(plans.promises || plans.estimates)) return null;
  return (
    <Section title="Planned starts">
      {plans.promises ? <Kept plans={plans} /> : null}
      {plans.estimates ? (
        <p>
          Of {plural(plans.estimates, "estimated start")}, {percent(plans.p50_held ?? 0, 1)} came by the 50 % time and{" "}
          {percent(plans.p90_held ?? 0, 1)} by the 90 % time; {count(plans.delayed ?? 0)} were delayed once or more by
          what went before them.
        </p>
      ) : null}
    </Section>
  );
}

function Kept({ plans }: { plans: Plans }) {
  const early = plans.early_p50_s ?? 0;
  return (
    <>
      <p>
        {count(plans.kept ?? 0)} of {plural(plans.promises ?? 0, "promised start")} kept
        {early >= 1 && `, half of them ${duration(early)} sooner or more`}.
      </p>
      {plans.broken && plans.broken.length > 0 && (
        <ul>
          {plans.broken.map((one) => (
            <li key={`${one.job}.${one.task}`}>
              <Link to={`/jobs/${one.job}`}>Job {one.job}</Link>, promised for {moment(one.promised_at)}: {one.reason}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
