"""The process that keeps the daemons of a local grid while their program lives. Standard library only.

It reads orders from stdin, a line of JSON for each daemon to start, and writes a line when one has started or ended.
When stdin closes, because the program stopped the grid or was killed, it ends the daemons, latest first, removes the
grid's folder if requested, and ends. On Linux, the kernel sends daemons SIGTERM if it is killed. A user's command
that the program runs on the grid is ended likewise, with all its descendants (Linux).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PID_FILE = "caretaker.pid"
_END_LIMIT_S = 15.0
_COMMAND_LIMIT_S = 5.0
_PR_SET_PDEATHSIG = 1


def main(folder: Path, removes_folder: bool) -> None:
    """Start daemons as ordered until stdin closes; then end the rest of the grid."""
    _on_signal(lambda *_: sys.exit())
    (folder / PID_FILE).write_text(f"{os.getpid()}\n", "utf-8")
    daemons: list[subprocess.Popen[bytes]] = []
    command: Command | None = None
    with contextlib.suppress(SystemExit):
        for line in sys.stdin.buffer:
            order = json.loads(line)
            if "command_pid" in order:
                command = Command(order["command_pid"])
                continue
            daemons.append(_started(order))
            _report({"started": order["name"], "pid": daemons[-1].pid})
            threading.Thread(target=_report_end, args=(order["name"], daemons[-1]), daemon=True).start()
    _on_signal(signal.SIG_IGN)
    if command:
        command.end()
    for daemon in reversed(daemons):
        _end(daemon)
    (folder / PID_FILE).unlink(missing_ok=True)
    if removes_folder:
        shutil.rmtree(folder, ignore_errors=True)


class Command:
    """The user's command, a child of the program."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._file = -1
        with contextlib.suppress(OSError, AttributeError):  # it has ended, or this is no Linux
            self._file = os.pidfd_open(pid)

    def end(self) -> None:
        """End it with its descendants, unless it has ended; kill processes that do not end in time."""
        if self._file < 0 or self._has_ended(0):
            return
        processes = [*descendants(self._pid), self._pid]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in processes:
                with contextlib.suppress(OSError):
                    os.kill(process, number)
            if self._has_ended(_COMMAND_LIMIT_S):
                return

    def _has_ended(self, seconds: float) -> bool:
        return bool(select.select([self._file], [], [], seconds)[0])


def descendants(pid: int) -> Iterator[int]:
    """Yield the living descendants of a process, deepest first (Linux)."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                yield from descendants(child)
                yield child


def _on_signal(handler: Any) -> None:
    for name in ("SIGTERM", "SIGHUP", "SIGINT"):
        if number := getattr(signal, name, None):
            signal.signal(number, handler)


def _started(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start a daemon in a session of its own, so that Ctrl-C in the terminal does not reach it."""
    with open(order["log"], "wb") as log:  # noqa: PTH123
        return subprocess.Popen(
            order["command"],
            env=order["environment"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_in_child,  # noqa: PLW1509 - it only calls the kernel
        )


def _ends_with_caretaker() -> None:
    """Have the kernel send this process SIGTERM when the caretaker is gone."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _libc_here() -> Any:
    try:
        import ctypes

        return ctypes.CDLL(None) if sys.platform == "linux" else None
    except (ImportError, OSError):  # the program's own end still ends the daemons, through stdin
        return None


def _report_end(name: str, daemon: subprocess.Popen[bytes]) -> None:
    daemon.wait()
    _report({"ended": name})


def _report(news: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the program may be gone
        os.write(1, json.dumps(news).encode() + b"\n")


def _end(daemon: subprocess.Popen[bytes]) -> None:
    """Stop a daemon; kill it and its session if it does not end in time."""
    daemon.terminate()
    try:
        daemon.wait(_END_LIMIT_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            daemon.kill() if sys.platform == "win32" else os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()


_libc = _libc_here()  # before a fork, where loading a library is not safe
_in_child = _ends_with_caretaker if _libc is not None else None

if __name__ == "__main__":
    main(Path(sys.argv[1]), removes_folder=sys.argv[2] == "remove")
