"""Output of tasks as a terminal may show it: with its colours, and no other control character.

With others a task could clear the screen, change the title, or have the terminal type in its user's name.
"""

from __future__ import annotations

import re

_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that change the direction of writing: with them a name reads as another one."""
_ESCAPED = {ord(one): f"\\u{ord(one):04x}" for one in _BIDI} | {
    code: f"^{chr(code & 0x7F ^ 0x40)}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"
}
_COLOURS_OR_CONTROL = re.compile(
    rb"\x1b\[[0-9;:]*m|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|" + b"|".join(one.encode() for one in _BIDI)
)
_UNFINISHED = re.compile(rb"(?:\x1b(?:\[[0-9;:]{0,40})?|\xc2|\xd8|\xe2[\x80\x81]?)\Z")


class Printable:
    """Makes one output printable, piece by piece; a sequence may begin in one and end in the next."""

    def __init__(self) -> None:
        self._begun = b""

    def add(self, piece: bytes) -> bytes:
        """Return what can be printed now."""
        piece = self._begun + piece
        begun = _UNFINISHED.search(piece)
        whole, self._begun = (piece[: begun.start()], begun[0]) if begun else (piece, b"")
        return _COLOURS_OR_CONTROL.sub(_shown, whole)

    def end(self) -> bytes:
        """Return what was begun and never finished."""
        return _COLOURS_OR_CONTROL.sub(_shown, self._begun)


def visible(text: str) -> str:
    """Return a text with control characters escaped, colours too, and characters that change the direction."""
    return text.translate(_ESCAPED)


def printable(text: str) -> str:
    """Return a whole text as a terminal may show it."""
    output = Printable()
    return (output.add(text.encode(errors="surrogateescape")) + output.end()).decode(errors="replace")


def _shown(found: re.Match[bytes]) -> bytes:
    """Return colours as they are, and a control character in caret notation, as ``cat -v`` has it."""
    control = found[0]
    if control.endswith(b"m"):
        return control
    if control[0] in (0xD8, 0xE2):
        return visible(control.decode()).encode()
    return b"^" + bytes([control[-1] & 0x7F ^ 0x40])
