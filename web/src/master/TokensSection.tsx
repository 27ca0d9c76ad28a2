import { useState } from "preact/hooks";
import { get, post } from "../api/client";
import type { Page, TokenCreated, TokenView } from "../api/types";
import { Cards, type Column } from "../lists/Cards";
import { Pager, usePages } from "../lists/Pager";
import { now } from "../live/clock";
import { never, useResource } from "../live/resource";
import { useWord } from "../router";
import { ago, moment } from "../text/human";
import { Button } from "../ui/Button";
import { Chip } from "../ui/Chip";
import { confirmed } from "../ui/Confirm";
import { Section } from "../ui/Section";
import { Empty, Shown } from "../ui/states";
import { attempt, say } from "../ui/toast";
import { NewToken } from "./NewToken";
import { lineOf, stateOf } from "./tokens";

const EVERY_MS = 60_000;

/** Keys to the master: who has one, when it was last used, and from where. For admins. */
export function TokensSection() {
  const pages = usePages("tokens");
  const [word, setWord] = useWord("ended");
  const [made, setMade] = useState<TokenCreated | null>(null);
  const tokens = useResource(
    `tokens/${pages.cursor ?? ""}`,
    (signal) => get<Page<TokenView>>("/tokens", { cursor: pages.cursor }, signal),
    never,
    EVERY_MS,
  );

  function show(created: TokenCreated): void {
    setMade(created);
    tokens.reload();
  }

  const isEndedShown = word !== null;
  return (
    <Section
      title="Tokens"
      aside={
        <Button isPressed={isEndedShown} onClick={() => setWord(isEndedShown ? null : "shown")}>
          Ended ones, too
        </Button>
      }
    >
      <NewToken onMade={show} />
      {made && <Secret of={made} onGone={() => setMade(null)} />}
      <Shown of={tokens} what="tokens">
        {({ items, next }) => {
          const rows = items.filter((token) => isEndedShown || stateOf(token, now.value) === "valid");
          return (
            <>
              {rows.length ? (
                <Cards
                  rows={rows}
                  keyOf={({ id }) => id}
                  columns={COLUMNS}
                  rowClass={(token) => (stateOf(token, now.value) === "valid" ? "" : "gone")}
                  actions={(token) => <Revoke token={token} onDone={tokens.reload} />}
                />
              ) : (
                <Empty>No token on this page is valid.</Empty>
              )}
              <Pager pages={pages} next={next} />
            </>
          );
        }}
      </Shown>
    </Section>
  );
}

const COLUMNS: Column<TokenView>[] = [
  { name: "Name", show: ({ name }) => name },
  { name: "Role", show: ({ role }) => role },
  { name: "Token", show: ({ id }) => <code>{id}</code> },
  { name: "State", show: (token) => <State token={token} /> },
  { name: "Expires", class: "number", show: ({ expires_at }) => (expires_at ? moment(expires_at) : "never") },
  {
    name: "Last used",
    class: "number",
    title: ({ used_at }) => (used_at ? moment(used_at) : undefined),
    show: ({ used_at }) => (used_at ? ago(used_at, now.value) : "never"),
  },
  { name: "From", class: "number", show: ({ used_from }) => used_from || "–" },
  { name: "Made", class: "number", show: ({ created_at }) => moment(created_at) },
];

function State({ token }: { token: TokenView }) {
  const state = stateOf(token, now.value);
  return <Chip state={state === "valid" ? "connected" : "failed"}>{state}</Chip>;
}

function Revoke({ token, onDone }: { token: TokenView; onDone: () => void }) {
  if (stateOf(token, now.value) !== "valid") return null;

  async function revoke(): Promise<void> {
    const text = "Whoever has it is refused from now on, at once and for good; their links and streams end.";
    if (!(await confirmed(`Revoke token ${token.id} of ${token.name}?`, text, "Revoke it"))) return;
    const isDone = await attempt(() => post(`/tokens/${token.id}/revoke`));
    if (isDone) say(`Token ${token.id} of ${token.name} is revoked.`);
    onDone();
  }

  return (
    <Button kind="danger" label={`revoke token ${token.id} of ${token.name}`} onClick={() => void revoke()}>
      Revoke
    </Button>
  );
}

/** A new token's secret, which nobody can see again, and what its user does with it. */
function Secret({ of: made, onGone }: { of: TokenCreated; onGone: () => void }) {
  const line = lineOf(made);

  async function copy(): Promise<void> {
    if (await attempt(() => navigator.clipboard.writeText(line ?? made.secret))) say("Copied.");
  }

  return (
    <div class="explained secret" role="status">
      <p>
        The token of {made.name}, a {made.role}, is shown this once.{" "}
        {line ? "On their computer they type:" : "Its secret:"}
      </p>
      <p>
        <code>{line ?? made.secret}</code>
      </p>
      <p class="buttons">
        <Button onClick={() => void copy()}>Copy</Button>
        <Button kind="quiet" onClick={onGone}>
          Done with it
        </Button>
      </p>
    </div>
  );
}
