"""Links to the master's page, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_MOST_LINKS = 10


def html_of(what: str, master: str, jobs: Iterable[int] = ()) -> str:
    """Return what something is and where its master and its latest jobs are, as HTML."""
    latest = list(jobs)[-_MOST_LINKS:]
    links = [_link(f"{master}/jobs/{job}", f"job {job}") for job in latest]
    return f"{escape(what)} of {', '.join([_link(master, master), *links])}"


def _link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}" target="_blank">{escape(text)}</a>'
