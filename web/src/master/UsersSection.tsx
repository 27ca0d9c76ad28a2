import { ask } from "../api/client";
import type { LimitUse } from "../api/types";
import { Cards, type Column } from "../lists/Cards";
import { sorted } from "../lists/sorted";
import { useSorting } from "../lists/sorting";
import { isAdmin } from "../session/session";
import { amount, count, delay, percent } from "../text/human";
import { Button } from "../ui/Button";
import { told } from "../ui/Confirm";
import { Section } from "../ui/Section";
import { Empty, Shown } from "../ui/states";
import { attempt, say } from "../ui/toast";
import { isNear, type User, useMaster, usersOf, useShares } from "./master";

/** Who costs the master most, and who is near a limit. */
export function UsersSection() {
  const master = useMaster();
  const shares = useShares();
  const sorting = useSorting("users");
  const reload = (): void => shares.reload();
  return (
    <Section title="Users" aside={<span class="faint">what they cost the master within the last hour</span>}>
      <Shown of={master} what="users">
        {({ users: costs }) => {
          const users = usersOf(costs, shares.data?.users ?? []);
          const columns = columnsOf(costs.reduce((sum, { step_s }) => sum + step_s, 0));
          if (!users.length) return <Empty>Nobody has asked anything of it within the last hour.</Empty>;
          return (
            <Cards
              rows={sorted(users, columns, sorting)}
              keyOf={({ name }) => name}
              columns={columns}
              sorting={sorting}
              {...(isAdmin.value && { actions: (user: User) => <Share user={user} onDone={reload} /> })}
            />
          );
        }}
      </Shown>
    </Section>
  );
}

const columnsOf = (all_s: number): Column<User>[] => [
  { name: "User", order: ({ name }) => name, show: ({ name }) => name },
  {
    name: "Step time",
    class: "right number",
    about: "Time of the scheduler's steps that were about their jobs, and its part of all steps",
    order: ({ cost }) => cost?.step_s,
    show: ({ cost }) => cost && `${delay(cost.step_s)}, ${percent(cost.step_s, all_s)}`,
  },
  {
    name: "Requests",
    class: "right number",
    order: ({ cost }) => cost?.requests,
    show: ({ cost }) => cost && count(cost.requests),
  },
  {
    name: "Jobs",
    class: "right number",
    order: ({ cost }) => cost?.jobs,
    show: ({ cost }) => count(cost?.jobs ?? 0),
  },
  {
    name: "Tasks left",
    class: "right number",
    order: ({ cost }) => cost?.tasks,
    show: ({ cost }) => count(cost?.tasks ?? 0),
  },
  {
    name: "Share",
    class: "right number",
    about: "Of two users who want all slots, each gets them in this proportion",
    order: ({ share }) => share?.share,
    show: ({ share }) => share?.share ?? 1,
  },
  { name: "Limits", show: ({ share }) => <Limits limits={share?.limits ?? []} /> },
];

const WORDS: Record<string, string> = { spec_bytes: "specs", file_bytes: "files", listeners: "streams" };
const measured = ({ what }: LimitUse, value: number): string =>
  what.endsWith("_bytes") ? amount(value) : count(value);

/** What of each limit is used; what is near its bound stands out. */
function Limits({ limits }: { limits: LimitUse[] }) {
  if (!limits.length) return <span class="faint">–</span>;
  return (
    <span class="state-cell">
      {limits.map((limit) => (
        <span key={limit.what} class={isNear(limit) ? "chip bad" : "faint"}>
          {WORDS[limit.what] ?? limit.what} {measured(limit, limit.used)}/{measured(limit, limit.allowed)}
        </span>
      ))}
    </span>
  );
}

function Share({ user: { name, share }, onDone }: { user: User; onDone: () => void }) {
  async function give(): Promise<void> {
    const text = `All begin with 1; now it is ${share?.share ?? 1}.`;
    const given = await told(`Which share shall ${name} have?`, text, "Give it", "Share, such as 2 or 0.5");
    if (given === null) return;
    const isDone = await attempt(() => ask("PUT", `/shares/${name}`, { body: { share: Number(given) } }));
    if (isDone) say(`${name} has a share of ${given}.`);
    onDone();
  }
  return (
    <Button label={`change the share of ${name}`} onClick={() => void give()}>
      Share
    </Button>
  );
}
