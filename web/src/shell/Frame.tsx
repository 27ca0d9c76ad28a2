/** The frame of every page: navigation, the signed-in user, and the state of the connection. */
import type { ComponentChildren } from "preact";
import { awaySince, link } from "../live/changes";
import { Link, path } from "../router";
import { caller, maySubmit, signOut } from "../session/session";
import { clock } from "../text/human";
import { Button } from "../ui/Button";
import { ThemeSwitch } from "../ui/theme";
import { attempt } from "../ui/toast";
import { manualOf } from "./manual";

const PLACES: [string, string][] = [
  ["/", "Overview"],
  ["/timeline", "Timeline"],
  ["/jobs", "Jobs"],
  ["/workers", "Workers"],
  ["/guarantee", "Guarantee"],
  ["/master", "Master"],
];

export function Frame({ children }: { children: ComponentChildren }) {
  return (
    <>
      <a class="skip" href="#main">
        To the content
      </a>
      <header class="bar">
        <Link to="/" class="mark">
          Loopline
        </Link>
        <nav aria-label="Pages">
          {PLACES.map(([to, name]) => (
            <Link key={to} to={to} aria-current={isCurrent(to) ? "page" : undefined}>
              {name}
            </Link>
          ))}
          {maySubmit.value && (
            <Link to="/submit" aria-current={isCurrent("/submit") ? "page" : undefined}>
              Submit
            </Link>
          )}
        </nav>
        <div class="who">
          <span class="help">
            <a href={manualOf(path.value)}>Manual</a>
            <a href="/docs">API</a>
          </span>
          <LinkLamp />
          <ThemeSwitch />
          <Who />
        </div>
      </header>
      {link.value === "away" && <AwayBanner />}
      <main id="main" tabIndex={-1}>
        {children}
      </main>
    </>
  );
}

function LinkLamp() {
  const words = { connecting: "connecting", live: "live", away: "no connection" }[link.value];
  return (
    <span class={`lamp ${link.value}`} role="status">
      {words}
    </span>
  );
}

function AwayBanner() {
  return (
    <div class="banner" role="alert">
      The master has not answered{awaySince.value && <> since {clock(awaySince.value)}</>}. This page shows the last
      known state, and continues by itself once the master is back. Tasks keep running on the workers.
    </div>
  );
}

/** Sign-out button; a master without tokens has none. */
function Who() {
  const who = caller.value!;
  if (who.name === "local") return <span class="faint">this computer</span>;
  return (
    <>
      <span class="name" title={`role: ${who.role}`}>
        {who.name}
      </span>
      <Button kind="quiet" onClick={() => void attempt(signOut)}>
        Sign out
      </Button>
    </>
  );
}

function isCurrent(to: string): boolean {
  return to === "/" ? path.value === "/" : path.value === to || path.value.startsWith(`${to}/`);
}
