/** What users have used, against their share; who is next comes first. Nothing is shown while there is one user. */
import { get } from "../api/client";
import type { SharesView, UserShare } from "../api/types";
import { anyJob, useResource } from "../live/resource";
import { count, cpuTime, duration, percent } from "../text/human";
import { Cards, type Column } from "../lists/Cards";
import { Section } from "../ui/Section";

const READ_EVERY_MS = 60_000;

export function SharesSection() {
  const { data } = useResource("shares", (signal) => get<SharesView>("/shares", {}, signal), anyJob, READ_EVERY_MS);
  if (!data?.is_kept) return null;
  const aside = <span class="faint">half of what was used is forgotten in {duration(data.half_life_s)}</span>;
  return (
    <Section title="Users" aside={aside}>
      <Cards rows={data.users} keyOf={({ user }) => user} columns={COLUMNS} />
      <p class="faint">A slot that falls free goes to the first user in this list who has a task for it.</p>
    </Section>
  );
}

function partOf(part: number | null): string {
  return part === null ? "–" : percent(part, 1);
}

const COLUMNS: Column<UserShare>[] = [
  { name: "User", show: (one) => one.user },
  { name: "Share", class: "right number", show: (one) => String(one.share) },
  { name: "Due", class: "right number", show: (one) => partOf(one.due) },
  { name: "Used", class: "right number", show: (one) => partOf(one.used) },
  { name: "Slot time", class: "right number", show: (one) => cpuTime(one.used_s) },
  { name: "Slots now", class: "right number", show: (one) => count(one.slots) },
  { name: "Jobs", class: "right number", show: (one) => count(one.jobs) },
];
