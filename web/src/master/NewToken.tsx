import { useState } from "preact/hooks";
import { post } from "../api/client";
import type { Role, TokenCreated } from "../api/types";
import { Button } from "../ui/Button";
import { Field } from "../ui/Field";
import { attempt } from "../ui/toast";
import { ROLES } from "./tokens";

const DAY_S = 86_400;
const LIVES: [string, number | null][] = [
  ["never", null],
  ["in a day", DAY_S],
  ["in 30 days", 30 * DAY_S],
  ["in 90 days", 90 * DAY_S],
  ["in a year", 365 * DAY_S],
];

/** A form that makes a token for somebody. */
export function NewToken({ onMade }: { onMade: (token: TokenCreated) => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("user");
  const [life, setLife] = useState(0);
  const [isBusy, setBusy] = useState(false);

  async function make(event: Event): Promise<void> {
    event.preventDefault();
    setBusy(true);
    await attempt(async () => {
      onMade(await post<TokenCreated>("/tokens", { name: name.trim(), role, expires_s: LIVES[life]![1] }));
      setName("");
    });
    setBusy(false);
  }

  return (
    <form class="new-token" onSubmit={(event) => void make(event)} aria-label="New token">
      <Field label="Name" hint="of the user, or of the program">
        {(attributes) => (
          <input
            {...attributes}
            required
            maxLength={64}
            autocomplete="off"
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
        )}
      </Field>
      <Field label="Role" hint={ROLES.find(([one]) => one === role)![1]}>
        {(attributes) => (
          <select {...attributes} value={role} onChange={(event) => setRole(event.currentTarget.value as Role)}>
            {ROLES.map(([one]) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label="Expires">
        {(attributes) => (
          <select {...attributes} value={life} onChange={(event) => setLife(Number(event.currentTarget.value))}>
            {LIVES.map(([word], place) => (
              <option key={word} value={place}>
                {word}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Button type="submit" isBusy={isBusy}>
        Make a token
      </Button>
    </form>
  );
}
