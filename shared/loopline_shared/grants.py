"""Grants: how the master authorises one transfer between two workers, and how these prove it to each other.

Each worker that serves shares a key with the master. The secret of a grant is the HMAC of its four fields under the
key of the worker that serves. The master gives the secret to the receiver; the serving worker computes it from the
grant that it is shown. So it need not have heard of a transfer before: a receiver may come sooner than any frame, and
while the master is away, and a restart of either end forgets nothing. (With a random secret for each transfer, the
master would have to tell both ends in time, and each worker remember all.)

The secret itself never crosses a connection between workers. Both ends prove that they know it, over random numbers
of both: who has listened can neither repeat it nor pretend to be the other end.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from loopline_shared.protocol.transfers import Grant

GRANTED_FOR_S = 600.0
"""A transfer must begin within this time; it may go on for longer."""


def worker_key(master_key: bytes, worker: str, boot: str) -> bytes:
    """Return the key of one run of a worker's agent."""
    return _hash(master_key, ("worker", worker, boot))


def secret_of(key: bytes, grant: Grant) -> bytes:
    """Return the secret of a grant, under the key of the worker that serves."""
    return _hash(key, ("grant", grant.sha256, grant.source, grant.receiver, f"{grant.expires_at:.3f}"))


def proof(secret: bytes, end: str, opening: bytes, nonce: str) -> str:
    """Return the proof of one end (``caller`` or ``listener``) that it knows the secret.

    ``opening`` is the caller's first line, with the grant and a nonce; ``nonce`` is the listener's.
    """
    return _hash(secret, (end, opening.hex(), nonce)).hex()


def is_proof(found: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(found.encode(), expected.encode())


def _hash(key: bytes, words: Iterable[str]) -> bytes:
    """Return the HMAC of words, none of which contains a NUL."""
    return hmac.digest(key, "\0".join(words).encode(), "sha256")
