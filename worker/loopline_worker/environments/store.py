"""The environments on this computer, within the cache's limit: the least recently used make room for others."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from loopline_worker.attempts import scratch
from loopline_worker.environments.environment import RECORD, Environment
from loopline_worker.files.cache import Cache
from loopline_worker.timings import INTERPRETER_IDLE_S

log = logging.getLogger(__name__)


class EnvironmentStore:
    """Environments at ``<folder>/<key>``. Together with the input files of the cache they keep to its limit.

    ``in_use`` returns the keys of environments used by attempts. An idle interpreter may use one for a while longer.
    """

    def __init__(self, folder: Path, limit_bytes: int, cache: Cache) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._cache = cache
        self.in_use: Callable[[], set[str]] = set
        self._used: dict[str, float] = {}  # by key: when, by ``time.monotonic``
        self._all: dict[str, Environment] = {}  # the least recently used first

    def open(self) -> None:
        """Find what earlier agents have left, and remove what is not complete."""
        self.folder.mkdir(exist_ok=True)
        found = []
        for folder in self.folder.iterdir():
            if environment := Environment.read(folder):
                found.append(((folder / RECORD).stat().st_mtime, environment))
            else:
                scratch.remove(folder)
        self._all = {one.key: one for _, one in sorted(found, key=lambda pair: pair[0])}
        self._keep_to_limit()

    def find(self, key: str) -> Environment | None:
        """Return an environment and mark it as the last used; None if it is not here."""
        environment = self._all.pop(key, None)
        if environment:
            self._all[key], self._used[key] = environment, time.monotonic()
            with suppress(OSError):
                os.utime(environment.folder / RECORD)
        return environment

    def add(self, environment: Environment) -> None:
        """Add a complete environment."""
        self._all[environment.key], self._used[environment.key] = environment, time.monotonic()
        self._keep_to_limit()

    def make_room(self, wanted_bytes: int) -> None:
        """Remove unused environments, least recently used first, until ``wanted_bytes`` are free."""
        recent = time.monotonic() - 2 * INTERPRETER_IDLE_S
        used = self.in_use() | {key for key, at in self._used.items() if at > recent}
        for environment in [one for key, one in self._all.items() if key not in used]:
            if wanted_bytes <= 0:
                break
            wanted_bytes -= environment.size_bytes
            log.info("the environment %s is removed: it was not used for longest", environment.key)
            del self._all[environment.key]
            (environment.folder / RECORD).unlink(missing_ok=True)
            scratch.remove(environment.folder)
        self._cache.others_bytes = self._size_bytes

    def _keep_to_limit(self) -> None:
        """Keep to the limit: input files go first, for they are fetched again sooner than an environment is made."""
        self._cache.others_bytes = self._size_bytes
        self._cache.keep_to_limit()
        self.make_room(self._size_bytes + self._cache.size_bytes - self.limit_bytes)

    @property
    def _size_bytes(self) -> int:
        return sum(one.size_bytes for one in self._all.values())
