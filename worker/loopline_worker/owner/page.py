"""The owner's page in HTML: plain, with forms for buttons. It asks for itself again every few seconds."""

from __future__ import annotations

import time
from base64 import b64encode
from hashlib import sha256
from html import escape

from loopline_worker.owner.state import State

_AGAIN_S = 5
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
"""What a browser may do with it."""
_BUTTONS = (("1h", "Pause for 1 hour"), ("until-tomorrow", "Until tomorrow"), ("for-good", "For good"))


def render(state: State) -> str:
    parts = (
        f"<h1>{escape(state.worker)}: {escape(headline(state))}</h1>",
        f"<p>{escape(presence(state))}</p>" if presence(state) else "",
        f"<p>{escape(state.notice)}</p>" if state.notice else "",
        f"<p>{_switch(state)}</p>",
        f"<h2>Running here</h2>{_running(state)}",
        f"<h2>When tasks made way for you</h2>{_gave(state)}",
        "<h2>What it may do</h2><ul>" + "".join(f"<li>{escape(line)}</li>" for line in state.terms) + "</ul>",
        "<p class=quiet>This page is for whoever uses this computer. It can pause the worker here, nothing else.</p>",
    )
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        f"<meta http-equiv=refresh content={_AGAIN_S}><meta name=viewport content='width=device-width'>"
        f"<title>Loopline on this computer</title><style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>"
    )


def headline(state: State) -> str:
    """In a few words, how it stands."""
    if state.paused:
        return f"paused {state.paused}"
    frozen = sum(task.frozen for task in state.running)
    doing = f"{len(state.running) - frozen} running" + (f", {frozen} standing still" if frozen else "")
    return f"{doing}, {state.slots} of {state.most_slots} slots lent" + (f" ({state.why})" if state.why else "")


def presence(state: State) -> str:
    """Who is at the desk, and who says so; empty where nobody asks."""
    if not state.seen_by:
        return ""
    if state.idle_s is None:
        return f"In use, to be safe: {state.seen_by}."
    return f"Last input {state.idle_s:.0f} s ago, seen by {state.seen_by}."


def figures(state: State) -> str:
    """How fast tasks made way, as measured."""
    if not state.yields:
        return "Not yet, since the worker started."
    return (
        f"{state.yields} times since the worker started; from your input until they stood still it took "
        f"{state.yield_p50_s:.3f} s (half of the times) to {state.yield_p99_s:.3f} s (99 in 100)."
    )


def _switch(state: State) -> str:
    if state.paused:
        return "<form method=post action=resume><button>Resume</button></form>"
    return "".join(
        f"<form method=post action=pause><button name=for value={words}>{text}</button></form>"
        for words, text in _BUTTONS
    )


def _running(state: State) -> str:
    if not state.running:
        return "<p>Nothing.</p>"
    rows = "".join(
        f"<tr><td>{escape(task.job or 'a job without a name')}<td>{task.ran_s:.0f} s"
        f"<td>{'stands still' if task.frozen else 'runs'}"
        for task in state.running
    )
    return f"<table><tr><th>Job<th>For<th>Now{rows}</table>"


def _gave(state: State) -> str:
    rows = "".join(
        f"<tr><td>{time.strftime('%H:%M:%S', time.localtime(entry.at))}<td>{entry.tasks}"
        f"<td>{entry.took_s:.3f} s {'after your input' if entry.after_input else 'after it was due'}"
        f"<td>{escape(entry.why)}"
        for entry in state.gave
    )
    table = f"<table><tr><th>At<th>Tasks<th>Stood still<th>Because{rows}</table>" if rows else ""
    return f"<p>{escape(figures(state))}</p>{table}"
