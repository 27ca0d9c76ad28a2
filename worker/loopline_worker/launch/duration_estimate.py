"""How long tasks take here, as far as the last ones tell: how many of them are worth lining up."""

from __future__ import annotations

_AHEAD_S = 0.02
"""So much work is lined up at most: what is the more would only be missing elsewhere."""
_MOST = 16
_LONGEST_S = 0.1
"""What takes longer counts as this, so that it is forgotten again."""
_SHARE = 0.2
"""Of the last one, in what is usual."""


class Pace:
    def __init__(self) -> None:
        self._usual_s = _LONGEST_S

    def took(self, seconds: float) -> None:
        self._usual_s += _SHARE * (min(seconds, _LONGEST_S) - self._usual_s)

    def in_a_moment(self) -> int:
        """How many one after the other may be expected to be over at once."""
        return min(_MOST, int(_AHEAD_S / max(self._usual_s, _AHEAD_S / _MOST)))
