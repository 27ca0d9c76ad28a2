"""Installs a worker as a service of this computer's own system, says how it is, and removes it."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopline.cli.daemons import program
from loopline.service import plans
from loopline.service.plans import Plan
from loopline_shared.errors import LooplineError

SYSTEMD_RUNS = Path("/run/systemd/system")
_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class State:
    """How the service is."""

    installed: bool
    running: bool
    files: tuple[str, ...]

    @property
    def document(self) -> dict[str, Any]:
        return {"installed": self.installed, "running": self.running, "files": list(self.files)}

    @property
    def words(self) -> str:
        if not self.installed:
            return "not installed: `loopline service install` does it"
        return "installed and running" if self.running else "installed, but not running"


def plan(system: bool = False, user: str | None = None, arguments: Sequence[str] = ()) -> Plan:
    """For this computer; LooplineError where it cannot be."""
    command = _command(arguments)
    if sys.platform == "win32":
        _only_for_systemd(system)
        folder = Path(os.environ.get("LOCALAPPDATA", str(Path.home()))) / "loopline"
        return plans.for_windows(command, folder, f"{os.environ.get('USERDOMAIN', '.')}\\{getpass.getuser()}")
    if sys.platform == "darwin":
        _only_for_systemd(system)
        return plans.for_macos(command, Path.home(), os.getuid())
    if system:
        return plans.for_system(command, _who(user))
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return plans.for_user(command, config, getpass.getuser())


def install(system: bool = False, user: str | None = None, arguments: Sequence[str] = ()) -> State:
    """Write its files and start it; also again, with other arguments."""
    todo = plan(system, user, arguments)
    _check_manager()
    for file, content in todo.files.items():
        _write(file, content)
    for command in todo.install:
        _run(command)
    return state(system, user)


def uninstall(system: bool = False) -> State:
    """Stop it and remove its files; nothing happens where there is none."""
    todo = plan(system, user="nobody")
    _check_manager()
    if todo.is_written:
        for command in todo.uninstall:
            with suppress(LooplineError):  # it may have been stopped or disabled by hand
                _run(command)
    for file in todo.files:
        file.unlink(missing_ok=True)
    return state(system)


def state(system: bool = False, user: str | None = None) -> State:
    todo = plan(system, user or "nobody")
    is_running = todo.is_written and _succeeds(todo.status)
    return State(todo.is_written, is_running, tuple(str(file) for file in todo.files if file.exists()))


def _command(arguments: Sequence[str]) -> list[str]:
    """Of a worker, by the interpreter that runs this, from any working folder."""
    return program("loopline_worker", "worker", *arguments)


def _who(user: str | None) -> str:
    found = user or os.environ.get("SUDO_USER") or getpass.getuser()
    if found == "root":
        hint = (
            "name another user with --user; a user of its own is best: sudo useradd --system --create-home loopline"
        )
        raise LooplineError("service", "tasks must not run as root", hint)
    return found


def _only_for_systemd(system: bool) -> None:
    if system:
        raise LooplineError("service", "--system is for systemd only", "leave --system out")


def _check_manager() -> None:
    if sys.platform == "linux" and not SYSTEMD_RUNS.is_dir():
        hint = "have your service manager run `loopline worker`; `loopline service install --print` shows a unit"
        raise LooplineError("no_service_manager", "systemd is not running on this computer", hint)


def _write(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except OSError as error:
        hint = "run it with sudo" if isinstance(error, PermissionError) else ""
        raise LooplineError("service", f"cannot write {file}: {error.strerror}", hint) from None


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LooplineError("service", f"cannot run {' '.join(command)}: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        raise LooplineError("service", f"{' '.join(command)} failed: {said}", "mend that, then run this again")


def _succeeds(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=_WITHIN_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
