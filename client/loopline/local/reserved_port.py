"""A port of this computer that is kept for a daemon which is about to listen there, or to do so again."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress


class ReservedPort:
    """A port that no other program gets until it is released. Raises OSError if it is taken.

    A socket is bound to it without listening. On Linux this keeps the port from programs that search for a free one,
    while a server, which sets SO_REUSEADDR, may listen there; a name of the port, which goes with this process, keeps
    it from others that reserve it. Other systems would refuse the server too: there the port was only free when it
    was searched.
    """

    def __init__(self, number: int = 0) -> None:
        place = socket.socket()
        self._held = [place]
        try:
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind(("127.0.0.1", number))
            self.number: int = place.getsockname()[1]
            if sys.platform == "linux":
                self._held.append(socket.socket(socket.AF_UNIX))
                self._held[-1].bind(f"\0loopline-port-{self.number}")
        except OSError:
            self.release()
            raise
        if sys.platform != "linux":
            self.release()

    def release(self) -> None:
        """Let others have the port, once its daemon has ended."""
        for held in self._held:
            held.close()


def reserved(*wanted: int) -> ReservedPort:
    """Reserve the first of these ports that is free, or else any."""
    for number in wanted:
        with suppress(OSError):
            return ReservedPort(number)
    return ReservedPort()
