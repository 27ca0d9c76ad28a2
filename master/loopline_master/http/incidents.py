"""Internal errors of requests: each is logged with a number, which its answer names."""

from __future__ import annotations

import logging
import math
import time
from secrets import token_hex

log = logging.getLogger(__name__)

_WITH_TRACEBACK_EVERY_S = 60.0


class Incidents:
    """Logs one line for each error, and a traceback once a minute for errors of one type from one line of code.

    A failing part fails for every waiting request: a hundred tracebacks would hide its first cause.
    """

    def __init__(self) -> None:
        self._logged: dict[tuple[type, str, int], tuple[float, str]] = {}  # when, and as which incident

    def note(self, request: str, error: Exception) -> str:
        """Log an error of this request (its method and path). Return the incident's number."""
        incident, place, now = token_hex(4), _place(error), time.monotonic()
        logged_at, earlier = self._logged.get(place, (-math.inf, ""))
        if now - logged_at >= _WITH_TRACEBACK_EVERY_S:
            self._logged[place] = now, incident
            log.error("incident %s: %s", incident, request, exc_info=error)
        else:
            cause = f"{type(error).__name__}: {error}"
            log.error("incident %s: %s: %s (traceback at incident %s)", incident, request, cause, earlier)
        return incident


def _place(error: Exception) -> tuple[type, str, int]:
    """Return the type of an error, and the file and line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (type(error), trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace else (type(error), "", 0)
