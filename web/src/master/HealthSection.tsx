import type { MasterView } from "../api/types";
import { now } from "../live/clock";
import { amount, count, delay, duration, moment, plural } from "../text/human";
import { Facts } from "../ui/Facts";
import { Section } from "../ui/Section";
import { Shown } from "../ui/states";
import { Tally } from "../ui/Tally";
import { fullIn_s, useMaster } from "./master";

/** From so many days on a full disk is nobody's worry. */
const SOON_S = 30 * 86_400;

export function HealthSection() {
  const master = useMaster();
  return (
    <Section title="Health">
      <Shown of={master} what="the master's health">
        {(view) => (
          <>
            <Tallies view={view} />
            <Details view={view} />
          </>
        )}
      </Shown>
    </Section>
  );
}

function Tallies({ view: { steps, sizes, lag_s } }: { view: MasterView }) {
  const full_s = fullIn_s(sizes);
  return (
    <dl class="tallies">
      <Tally
        label="A commit takes"
        value={steps.commit ? delay(steps.commit.p50_s) : "–"}
        note={steps.commit && `99 %: ${delay(steps.commit.p99_s)}`}
      />
      <Tally
        label="A step takes"
        value={steps.step ? delay(steps.step.p50_s) : "–"}
        note={steps.step && `99 %: ${delay(steps.step.p99_s)}`}
      />
      <Tally label="Events waiting" value={count(steps.waiting)} note={`${count(steps.most_waiting)} at most`} />
      <Tally label="Event loop late by" value={delay(lag_s)} />
      <Tally
        label="Disk free"
        value={amount(sizes.disk_free_bytes)}
        tone={full_s !== null && full_s < SOON_S ? "bad" : undefined}
        note={full_s !== null && full_s < SOON_S && `full in ${duration(full_s)}`}
      />
      <Tally
        label="Stored"
        value={amount(sizes.database_bytes + sizes.files_bytes)}
        note={sizes.stored_a_day !== null && `${growth(sizes.stored_a_day)} a day`}
      />
    </dl>
  );
}

function Details({ view: { version, started_at, steps, sizes } }: { view: MasterView }) {
  const since = sizes.log_began_at === null ? "" : `, since ${moment(sizes.log_began_at)}`;
  return (
    <Facts
      of={[
        ["Release", version],
        ["Runs for", duration(now.value - started_at)],
        ["Slowest step", steps.step && `${delay(steps.step.most_s)} of the last ${plural(steps.count, "step")}`],
        ["Slowest commit", steps.commit && delay(steps.commit.most_s)],
        ["Database", amount(sizes.database_bytes)],
        ["Files", amount(sizes.files_bytes)],
        ["Event log", `${count(sizes.log_entries)} ${sizes.log_entries === 1 ? "entry" : "entries"}${since}`],
        ["Event log grows by", sizes.log_a_day !== null && `${amount(sizes.log_a_day)} a day`],
      ]}
    />
  );
}

const growth = (bytes: number): string => (bytes < 0 ? `−${amount(-bytes)}` : `+${amount(bytes)}`);
