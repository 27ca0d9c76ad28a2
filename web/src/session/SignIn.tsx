import { useState } from "preact/hooks";
import { asProblem, type Problem } from "../api/client";
import { Button } from "../ui/Button";
import { ProblemNote } from "../ui/states";
import { parting, signIn } from "./session";

/** The door: a token becomes a cookie that no script can read. */
export function SignIn() {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const [isBusy, setBusy] = useState(false);

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    await signIn(token.trim()).catch((error: unknown) => setProblem(asProblem(error)));
    setBusy(false);
  }

  return (
    <main class="door" id="main" tabIndex={-1}>
      <h1>Loopline</h1>
      <form onSubmit={submit} class="panel door-form">
        <label for="token">Token</label>
        <input
          id="token"
          type="password"
          autocomplete="current-password"
          spellcheck={false}
          placeholder="ll_…"
          required
          value={token}
          onInput={(event) => setToken(event.currentTarget.value)}
        />
        {!problem && parting.value && <ProblemNote problem={parting.value} />}
        {problem && <ProblemNote problem={problem} hasHint={false} />}
        <Button kind="main" type="submit" isBusy={isBusy}>
          Sign in
        </Button>
        <p class="faint">
          On the master’s own computer yours is in <code>tokens/admin</code> below its data folder. Others get theirs
          from an admin: <code>loopline token create</code>.
        </p>
      </form>
    </main>
  );
}
