"""Masters and workers are forked from a process that has imported them, since imports take most of a start.

Each is still a separate process that a test can kill; only the second of imports is spent once instead of at every
start. `python -m loopline_master` and `python -m loopline_worker` have their own tests (tests/api/test_main.py,
tests/worker/test_main.py), and are used by the tutorial and the tests of two releases.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel

from loopline_shared.protocol import link_session

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([f"{__name__}_imported"])
PR_SET_PDEATHSIG = 1
_EVENTS = "loopline_master.core.events"
_NEEDED = [
    *("loopline_master.__main__", "loopline_worker.__main__", "loopline_worker.agent", "loopline_worker.discovery"),
    *("loopline_worker.launch.posix", "loopline_worker.launch.bubblewrap", "loopline_worker.launch.visible_paths"),
    *("loopline_worker.owner.server", "loopline_worker.owner.session_server", "h11", "encodings.ascii"),
]
"""Modules that a running daemon has imported, including late imports."""


class Daemon:
    """A running fork, with the interface of `asyncio.subprocess.Process`."""

    def __init__(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
    ) -> None:
        """Run ``module``'s `main` with ``arguments`` in ``folder``; append its output to the file ``log``."""
        log.touch()
        what = (module, list(arguments), dict(environment), str(folder), str(log))
        self._process = FORKS.Process(target=_become, args=what, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, signum: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Return the exit code, or the negative number of the signal that killed it."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        while (code := self.returncode) is None:
            loop.add_reader(self._process.sentinel, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(self._process.sentinel)
        return code


def imported() -> None:
    """Import the modules that daemons need, create their lazy objects, and exclude both from garbage collection."""
    for module in _NEEDED:
        importlib.import_module(module)
    for adapter in (link_session._from_worker, link_session._from_master, importlib.import_module(_EVENTS).BATCH):
        adapter.rebuild()
    for model in _models(BaseModel):
        model.model_rebuild(raise_errors=False)
    for operation in importlib.import_module("loopline_master.http.routes").all_operations():
        assert operation.handed_in is not None  # its annotations are evaluated
    gc.collect()
    gc.freeze()


def _models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        if model.__module__.startswith("loopline"):
            yield model
        yield from _models(model)


def _become(module: str, arguments: list[str], environment: dict[str, str], folder: str, log: str) -> None:
    """In the fork: prepare the process as a shell would, then run the daemon's own `main`."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed run leaves no daemon behind
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    written = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(written, 1)
    os.dup2(written, 2)
    for file in [int(each.name) for each in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError):  # the descriptor of the listing is closed already
            os.set_inheritable(file, file <= 2)  # tasks must not inherit descriptors of the fork server
    raise SystemExit(importlib.import_module(f"{module}.__main__").main(arguments))
