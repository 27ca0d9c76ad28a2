"""Idempotency keys that need no look into the database, because they are known to be new."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class FreshKeys:
    """Keys that a client's link generates for its submissions: ``<link>.<number>``.

    Such a key is new while its link is open, unless another connection has presented a key of the same link: for
    example a client that lost the link while its last messages were still being read here.
    """

    def __init__(self) -> None:
        self._is_only_source: dict[str, bool] = {}  # by open link

    @contextmanager
    def link(self, name: str) -> Iterator[None]:
        """Trust keys of this link while it is open."""
        self._is_only_source[name] = True
        try:
            yield
        finally:
            del self._is_only_source[name]

    def came_from_elsewhere(self, key: str) -> None:
        """Note that a key has come by another connection than its own link."""
        if (name := key.rpartition(".")[0]) in self._is_only_source:
            self._is_only_source[name] = False

    def is_fresh(self, key: str) -> bool:
        """True if no job can have been submitted under this key, which came on its own link."""
        return self._is_only_source.get(key.rpartition(".")[0], False)
