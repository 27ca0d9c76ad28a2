"""Install a worker or a master as a service of the operating system, report its state, and remove it."""

from __future__ import annotations

import getpass
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from loopline.programs import require
from loopline.service import installed, plans, trusted
from loopline.service.master_plans import master_for_system, master_for_user
from loopline.service.plans import Plan, filled
from loopline_shared.errors import LooplineError
from loopline_shared.joining import membership_file

Role = Literal["worker", "master"]
SYSTEMD_RUNS = Path("/run/systemd/system")
_WITHIN_S = 60.0
_LINGERING = Path("/var/lib/systemd/linger")
_FILE = "loopline-reporter.desktop"


@dataclass(frozen=True, slots=True)
class State:
    """State of the service."""

    installed: bool
    running: bool
    files: tuple[str, ...]
    role: Role = "worker"

    @property
    def document(self) -> dict[str, Any]:
        """State as JSON."""
        return {
            "installed": self.installed,
            "running": self.running,
            "files": list(self.files),
        }

    @property
    def words(self) -> str:
        """State as text."""
        if not self.installed:
            words = "loopline service install" + (" --master" if self.role == "master" else "")
            return f"not installed: run `{words}`"
        return "installed and running" if self.running else "installed, but not running"


def plan(system: bool = False, user: str | None = None, arguments: Sequence[str] = (), role: Role = "worker") -> Plan:
    """Return the plan for this computer. Raises LooplineError if there can be none."""
    command = _command(arguments, role)
    if role == "master":
        return _plan_of_master(system, user, command)
    if sys.platform == "win32":
        _only_for_systemd(system)
        folder = Path(os.environ.get("LOCALAPPDATA", str(Path.home()))) / "loopline"
        return plans.for_windows(command, folder, f"{os.environ.get('USERDOMAIN', '.')}\\{getpass.getuser()}")
    if sys.platform == "darwin":
        _only_for_systemd(system)
        return plans.for_macos(command, Path.home(), os.getuid())
    if system:
        if user:
            return with_reporter(plans.for_system(command, _who(user)), sys.executable)
        return with_reporter(plans.for_system_with_users(command, _starter(), _slots()), sys.executable)
    return plans.for_user(command, _config(), getpass.getuser())


def _plan_of_master(system: bool, user: str | None, command: Sequence[str]) -> Plan:
    if sys.platform != "linux":
        hint = "have your service manager run `loopline master`"
        raise LooplineError("service", "a master is made a service of systemd only", hint)
    if system:
        return master_for_system(command, user)
    return master_for_user(command, _config(), getpass.getuser())


def _config() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def install(
    system: bool = False, user: str | None = None, arguments: Sequence[str] = (), role: Role = "worker"
) -> State:
    """Write the files of the service and start it. A service that is installed already is replaced."""
    require(role)
    todo = plan(system, user, arguments, role)
    _check_manager(role)
    if system and not user:
        starts = [_command(())[0], sys.executable, *([_starter()[-1]] if role == "worker" else [])]
        trusted.check(*map(Path, starts))
    if todo.is_written:
        _stop(todo)  # some managers ignore new files while the service runs
    for file, content in {**todo.files, **todo.beside}.items():
        _write(file, content, is_public=system)
    for file in plan(system, role=role).beside.keys() - todo.beside.keys():  # of a service for another user
        file.unlink(missing_ok=True)
    _note_lingering(todo)
    for command in todo.install:
        _run(command)
    return state(system, user, role)


def uninstall(system: bool = False, role: Role = "worker") -> State:
    """Stop the service and remove its files, if there are any."""
    todo = plan(system, role=role)
    _check_manager(role)
    if todo.is_written:
        _stop(todo)
    for file in (*todo.files, *todo.beside):
        file.unlink(missing_ok=True)
    if todo.lingers and not any(plan(role=each).is_written for each in get_args(Role)):
        _restore_lingering(todo)
    return state(system, role=role)


def _note_lingering(plan: Plan) -> None:
    """Remember if lingering is off: it is turned on now, and off again with the service."""
    if plan.lingers and not Path(_LINGERING, plan.lingers).exists() and not _lingering_file().exists():
        _write(_lingering_file(), f"{plan.lingers}\n".encode())


def _restore_lingering(plan: Plan) -> None:
    if plan.lingers and _lingering_file().exists():
        _run(["loginctl", "disable-linger", plan.lingers])
        _lingering_file().unlink()


def _lingering_file() -> Path:
    """Return the file that is there if lingering was off before the service was installed."""
    return membership_file().with_name("lingering-was-off")


def is_installed() -> bool:
    """True if this user has the service, or a part of it."""
    return any(file.exists() for file in plan().files)


def state(system: bool = False, user: str | None = None, role: Role = "worker") -> State:
    """Return the state of the service."""
    todo = plan(system, user, role=role)
    is_running = todo.is_written and _succeeds(todo.status)
    files = tuple(str(file) for file in todo.files if file.exists())
    return State(todo.is_written, is_running, files, role)


def arguments() -> tuple[str, ...]:
    """Return the worker's arguments in the installed service of this user; empty without one."""
    found = installed.find(plan().files)
    return found.arguments if found else ()


def _command(arguments: Sequence[str], role: Role = "worker") -> list[str]:
    """Return the command line of a daemon, which works from any working folder."""
    script = Path(sys.executable).with_name("loopline")
    # On Windows a console script would open a window; there the plan takes the interpreter without one.
    if sys.platform != "win32" and os.access(script, os.X_OK):
        return [str(script), role, *arguments]
    return [sys.executable, "-P", "-m", "loopline", role, *arguments]


def _starter() -> list[str]:
    """Return the beginning of the command by which a service starts a worker whose tasks have users of their own.

    That process has more power than others: it is isolated, and loads the standard library and its own folder.
    """
    found = importlib.util.find_spec("loopline_worker")
    folder = Path(found.origin).parent if found and found.origin else Path("loopline_worker")
    return [sys.executable, "-I", "-S", str(folder / "supervisor" / "users" / "service.py")]


def _slots() -> int:
    """Return how many users tasks need at most: idle interpreters and those that end have one, too."""
    return 2 * (os.cpu_count() or 1) + 4


def _stop(plan: Plan) -> None:
    for command in plan.uninstall:
        with suppress(LooplineError):  # it may have been stopped or disabled by hand
            _run(command)


def _who(user: str) -> str:
    if user == "root":
        raise LooplineError("service", "tasks must not run as root", "leave --user out: tasks get users of their own")
    return user


def _only_for_systemd(system: bool) -> None:
    if system:
        raise LooplineError("service", "--system is for systemd only", "leave --system out")


def _check_manager(role: Role) -> None:
    if sys.platform == "linux" and not SYSTEMD_RUNS.is_dir():
        shows = "loopline service install" + (" --master" if role == "master" else "")
        hint = f"have your service manager run `loopline {role}`; `{shows} --print` shows a unit"
        raise LooplineError("no_service_manager", "systemd is not running on this computer", hint)


def _write(file: Path, content: bytes, *, is_public: bool = False) -> None:
    """Write a file. ``is_public``: all users may read it, even if the umask forbids that."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        if is_public:
            file.chmod(0o644)
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
        raise LooplineError("service", f"{' '.join(command)} failed: {said}", "fix the cause, then run this again")


def _succeeds(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=_WITHIN_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def with_reporter(plan: Plan, python: str, autostart: Path = Path("/etc/xdg/autostart")) -> Plan:
    """Return the plan with an entry that every desktop of this computer reads when somebody logs in."""
    command = _for_desktop([python, "-P", "-m", "loopline_worker.presence"])
    return replace(plan, beside={**plan.beside, autostart / _FILE: filled(_FILE, command=command)})


def _for_desktop(command: Sequence[str]) -> str:
    """Return the command quoted as the Desktop Entry Specification has it."""
    return " ".join(_word(word) for word in command)


def _word(word: str) -> str:
    plain = word.replace("%", "%%")
    if re.fullmatch(r"[\w%@+=:,./-]+", plain, re.ASCII):
        return plain
    quoted = re.sub(r'(["`$\\])', r"\\\1", plain)
    return '"' + quoted.replace("\\", "\\\\") + '"'  # the file's own escapes are read first
