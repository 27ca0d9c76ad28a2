"""The owner's page in HTML: plain, with forms for buttons. It reloads every few seconds."""

from __future__ import annotations

import time
from base64 import b64encode
from hashlib import sha256
from html import escape

from loopline_worker.owner.state import WorkerState

_RELOAD_S = 5
_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 42rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.05rem; margin-top: 1.8rem }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .2rem .8rem .2rem 0 }
form { display: inline } button { font: inherit; padding: .3rem .8rem; margin: 0 .4rem .4rem 0 }
.quiet { opacity: .7 }
"""
_STYLE_HASH = f"sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}"
POLICY = f"default-src 'none'; style-src '{_STYLE_HASH}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
"""The content-security policy of the page."""
_BUTTONS = (("1h", "Pause for 1 hour"), ("until-tomorrow", "Until tomorrow"), ("for-good", "For good"))


def render(state: WorkerState) -> str:
    """Return the page."""
    parts = (
        f"<h1>{escape(state.worker)}: {escape(headline(state))}</h1>",
        f"<p>{escape(presence(state))}</p>" if presence(state) else "",
        f"<p>{escape(state.notice)}</p>" if state.notice else "",
        f"<p>{escape(state.peers)}</p>" if state.peers else "",
        f"<p>{escape(state.sandbox)}</p>" if state.sandbox else "",
        f"<p>{_switch(state)}</p>",
        f"<h2>Running here</h2>{_running(state)}",
        f"<h2>When tasks were frozen for you</h2>{_freezes(state)}",
        f"<h2>What this computer gave</h2>{_contributed(state)}",
        f"<h2>When tasks may run</h2>{_preferences(state)}",
        "<p class=quiet>This page is for the owner of this computer. It can pause the worker here, nothing else.</p>",
    )
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        f"<meta http-equiv=refresh content={_RELOAD_S}><meta name=viewport content='width=device-width'>"
        f"<title>Loopline on this computer</title><style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>"
    )


def headline(state: WorkerState) -> str:
    """Return a summary in a few words."""
    if state.paused:
        return f"paused {state.paused}"
    frozen = sum(task.frozen for task in state.running)
    doing = f"{len(state.running) - frozen} running" + (f", {frozen} frozen" if frozen else "")
    return f"{doing}, {state.slots} of {state.most_slots} slots offered" + (f" ({state.why})" if state.why else "")


def presence(state: WorkerState) -> str:
    """Return the time of the last use of this computer and the probe that saw it; empty if presence is ignored."""
    if not state.seen_by:
        return ""
    if state.idle_s is None:
        return f"In use, to be safe: {state.seen_by}."
    return f"Last input {state.idle_s:.0f} s ago, seen by {state.seen_by}."


def figures(state: WorkerState) -> str:
    """Return how fast tasks were frozen, as measured."""
    if not state.yields:
        return "Never since the worker started."
    return (
        f"{state.yields} times since the worker started. From your input until they were frozen it took "
        f"{state.yield_p50_s:.3f} s (median) to {state.yield_p99_s:.3f} s (99th percentile){_last_yield(state)}."
    )


def _last_yield(state: WorkerState) -> str:
    last = next((entry for entry in state.freezes if entry.after_input), None)
    return f", the last time {last.took_s:.3f} s" if last else ""


def _switch(state: WorkerState) -> str:
    if state.paused:
        return "<form method=post action=resume><button>Resume</button></form>"
    return "".join(
        f"<form method=post action=pause><button name=for value={words}>{text}</button></form>"
        for words, text in _BUTTONS
    )


def _running(state: WorkerState) -> str:
    if not state.running:
        return "<p>Nothing.</p>"
    rows = "".join(
        f"<tr><td>{escape(task.job or 'a job without a name')}<td>{task.ran_s:.0f} s"
        f"<td>{'frozen' if task.frozen else 'running'}"
        for task in state.running
    )
    return f"<table><tr><th>Job<th>Time<th>State{rows}</table>"


def contributed_words(state: WorkerState) -> list[str]:
    """Return a line for each user: whose tasks ran here, how many, core-hours, when the last one ended."""
    return [
        f"{user}: {entry.tasks:,} task{'' if entry.tasks == 1 else 's'}, {entry.core_s / 3600:,.1f} core-hours, "
        f"last on {time.strftime('%d %b %H:%M', time.localtime(entry.last_at))}"
        for user, entry in state.contributed.items()
    ]


def _contributed(state: WorkerState) -> str:
    if not state.contributed:
        return "<p>Nothing yet.</p>"
    since = time.strftime("%d %b %Y", time.localtime(state.contributed_since))
    return (
        f"<p>Since {since}:</p><ul>" + "".join(f"<li>{escape(line)}" for line in contributed_words(state)) + "</ul>"
    )


def _preferences(state: WorkerState) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in state.preferences) + "</ul>"


def _freezes(state: WorkerState) -> str:
    rows = "".join(
        f"<tr><td>{time.strftime('%H:%M:%S', time.localtime(entry.at))}<td>{entry.tasks}"
        f"<td>{entry.took_s:.3f} s {'after your input' if entry.after_input else 'after it was due'}"
        f"<td>{escape(entry.why)}"
        for entry in state.freezes
    )
    table = f"<table><tr><th>At<th>Tasks<th>Frozen<th>Because{rows}</table>" if rows else ""
    return f"<p>{escape(figures(state))}</p>{table}"
