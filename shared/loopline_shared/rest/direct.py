"""Transfers past the master: large files of a grid that keeps them in a bucket go straight there and from there.

Who is able to do so says so in a request's HEADER. To GET the master then answers 307 and an address. To HEAD for a
file that it does not have, whose HEADER gives the size, it answers 404 and, in HEADER, where to PUT it; the sender
asks by HEAD again afterwards, and 200 acknowledges the file. Others are served by the master itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

HEADER = "Loopline-Direct"
LEAST_BYTES = 2**16
"""Smaller files go by way of the master, which takes fewer round trips."""
ELSEWHERE = 307
TAKEN = (200, 201, 204, 409, 412)
"""Answers of a bucket to a PUT that mean it has the file; 409 and 412: another client is sending or has sent it."""
AVOIDED_FOR_S = 300.0


@dataclass(frozen=True, slots=True)
class DirectUpload:
    """A place to send a file to past the master: a PUT to ``url`` with these headers, signed for this content."""

    url: str
    headers: Mapping[str, str]

    def encode(self) -> str:
        """Return the value of HEADER."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, value: str) -> DirectUpload:
        """Return the place that a value of HEADER names."""
        return cls(**json.loads(value))


class DirectWay:
    """The way to the bucket: avoided for a while after it was found closed, as by a firewall."""

    def __init__(self) -> None:
        self._closed_until = 0.0

    def asked(self, size_bytes: int = 0) -> dict[str, str]:
        """Return the header that asks for the way, for a file of this size if it is to be sent; none if avoided."""
        return {HEADER: str(size_bytes)} if time.monotonic() >= self._closed_until else {}

    def avoid(self) -> None:
        """Go by way of the master for a while."""
        self._closed_until = time.monotonic() + AVOIDED_FOR_S
