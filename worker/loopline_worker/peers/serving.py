"""Serving pieces to one worker, in a thread: each one as soon as it is here."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from loopline_worker.peers.growing_file import GrowingFile
from loopline_worker.peers.piece_stream import SIGN_EVERY_S, OutgoingPieces, StreamError
from loopline_worker.peers.token_bucket import TokenBucket
from loopline_worker.peers.upstreams import shut

_PATIENCE_S = 60.0
"""A receiver that requests or accepts nothing for this long is left."""


class Serving:
    """A file on its way to a worker; ``sent_bytes`` of it have gone."""

    def __init__(
        self, link: socket.socket, file: GrowingFile, limit: TokenBucket, may_go_on: Callable[[], bool]
    ) -> None:
        """``may_go_on`` says whether the owner allows it still."""
        self.sent_bytes = 0
        self._link = link
        self._file = file
        self._limit = limit
        self._may_go_on = may_go_on

    def run(self) -> None:
        """Serve until the receiver is done or gone, or the owner forbids it."""
        with self._link, suppress(StreamError, OSError):  # the receiver has other sources
            pieces = OutgoingPieces(self._link, _PATIENCE_S)
            if self._wait_for(pieces, pieces.first):
                with self._file.path.open("rb") as content:
                    self._send_all(pieces, content)

    def stop(self) -> None:
        """Close the connection; any thread may."""
        shut(self._link)

    def _send_all(self, pieces: OutgoingPieces, content: IO[bytes]) -> None:
        layout = self._file.layout
        for number in range(pieces.first, layout.count):
            pieces.listen(wait=number >= pieces.credit)
            while number >= pieces.credit:
                pieces.listen(wait=True)
            length = layout.length(number)
            is_late = number >= self._file.have or self._limit.wait_s(time.monotonic()) > 0
            if not self._wait_for(pieces, number) or not self._wait_for_tokens(pieces, length):
                return
            pieces.send(number, content, layout.start(number), length, is_late=is_late)
            self.sent_bytes += length

    def _wait_for(self, pieces: OutgoingPieces, number: int) -> bool:
        """Wait for a piece, and send signs of life during the wait. False if it will not come."""
        while not self._file.wait_for(number, SIGN_EVERY_S):
            if self._file.is_abandoned or not self._may_go_on():
                return False
            pieces.say_alive()
        return self._may_go_on()

    def _wait_for_tokens(self, pieces: OutgoingPieces, length: int) -> bool:
        """Wait until the owner's limit has room for a piece. False if the owner does not allow any more at all."""
        while wait_s := self._limit.wait_s(time.monotonic()):
            time.sleep(min(wait_s, SIGN_EVERY_S))
            if not self._may_go_on():
                return False
            pieces.say_alive(is_limited=True)
        self._limit.spend(length, time.monotonic())
        return True
