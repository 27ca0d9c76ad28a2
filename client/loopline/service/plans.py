"""Plans to install a worker as a service: the files to write and the commands to run. Pure."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path, PurePath, PureWindowsPath
from string import Template
from xml.sax.saxutils import escape

UNIT = "loopline-worker.service"
SLICE = "loopline.slice"
USERS = "loopline.conf"
TASKS_AS = "loopline-task-"
"""The beginning of the names of the users that tasks run as."""
LABEL = "org.loopline.worker"
TASK = "Loopline worker"


@dataclass(frozen=True, slots=True)
class Plan:
    """Files and commands of one service.

    ``install`` runs after the files are written, ``uninstall`` before they are removed.
    ``status`` exits with 0 if the service runs.
    """

    files: Mapping[Path, bytes]
    install: Sequence[Sequence[str]]
    uninstall: Sequence[Sequence[str]]
    status: Sequence[str]
    beside: Mapping[Path, bytes] = field(default_factory=dict)  # files that say nothing of whether it is installed
    lingers: str = ""  # the user whose services run while they are logged out; empty: no such thing

    @property
    def is_written(self) -> bool:
        """True if all files exist."""
        return all(file.exists() for file in self.files)


def for_user(command: Sequence[str], config: Path, user: str) -> Plan:
    """Return the plan of a systemd user unit; lingering keeps it running while its user is logged out."""
    folder = config / "systemd" / "user"
    manage = ["systemctl", "--user"]
    return Plan(
        {
            folder / SLICE: filled("loopline.slice"),
            folder / UNIT: filled("user.service", command=quoted(command)),
        },
        [
            [*manage, "daemon-reload"],
            [*manage, "enable", UNIT],
            [*manage, "restart", UNIT],
            ["loginctl", "enable-linger", user],
        ],
        [[*manage, "disable", "--now", UNIT]],
        [*manage, "is-active", UNIT],
        lingers=user,
    )


def for_system(command: Sequence[str], user: str, folder: Path = Path("/etc/systemd/system")) -> Plan:
    """Return the plan of a systemd system unit whose tasks run as this user, for a computer that nobody sits at."""
    return _of_system(folder, filled("system.service", command=quoted(command), user=user))


def for_system_with_users(
    command: Sequence[str], starter: Sequence[str], slots: int, etc: Path = Path("/etc")
) -> Plan:
    """Return the plan of a systemd system unit with a user for the worker and one for each slot.

    ``starter``: the beginning of a command that starts the worker and runs its tasks as those users.
    """
    words = [*starter, "--tasks-as", TASKS_AS, "--", *command]
    plan = _of_system(etc / "systemd/system", filled("system_with_users.service", command=quoted(words)))
    users, alarm = etc / "sysusers.d" / USERS, etc / "tmpfiles.d" / USERS
    lines = "\n".join(f'u {TASKS_AS}{slot} - "Tasks of Loopline"' for slot in range(1, slots + 1))
    return replace(
        plan,
        beside={
            users: filled("sysusers.conf", slots=lines),
            alarm: filled("clock_alarm.conf"),
            etc / "polkit-1/rules.d/60-loopline.rules": filled("suspend.rules"),
        },
        install=[["systemd-sysusers", str(users)], ["systemd-tmpfiles", "--create", str(alarm)], *plan.install],
    )


def _of_system(folder: Path, unit: bytes) -> Plan:
    return Plan(
        {folder / SLICE: filled("loopline.slice"), folder / UNIT: unit},
        [["systemctl", "daemon-reload"], ["systemctl", "enable", UNIT], ["systemctl", "restart", UNIT]],
        [["systemctl", "disable", "--now", UNIT]],
        ["systemctl", "is-active", UNIT],
    )


def for_macos(command: Sequence[str], home: Path, user_id: int) -> Plan:
    """Return the plan of a launchd agent of one user. UNTESTED."""
    file = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    arguments = "".join(f"\n    <string>{escape(word)}</string>" for word in command) + "\n  "
    log = escape(str(home / "Library" / "Logs" / "loopline-worker.log"))
    domain = f"gui/{user_id}"
    return Plan(
        {file: filled("launchd.plist", arguments=arguments, log=log)},
        [["launchctl", "bootstrap", domain, str(file)]],
        [["launchctl", "bootout", f"{domain}/{LABEL}"]],
        ["launchctl", "print", f"{domain}/{LABEL}"],
    )


def for_windows(command: Sequence[str], folder: PurePath, user: str) -> Plan:
    """Return the plan of a task that starts at log-on: a real service would not see its owner's input. UNTESTED."""
    program, *arguments = command
    file = Path(folder / "loopline-worker.xml")
    quiet = str(PureWindowsPath(program).with_name("pythonw.exe"))  # without a window
    words = escape(subprocess.list2cmdline(arguments))
    text = filled("task.xml", user=escape(user), program=escape(quiet), arguments=words).decode()
    return Plan(
        {file: text.encode("utf-16")},
        [["schtasks", "/create", "/tn", TASK, "/xml", str(file), "/f"], ["schtasks", "/run", "/tn", TASK]],
        [["schtasks", "/end", "/tn", TASK], ["schtasks", "/delete", "/tn", TASK, "/f"]],
        ["schtasks", "/query", "/tn", TASK],
    )


def filled(template: str, **values: str) -> bytes:
    """Return a template with these values."""
    text = (files("loopline.service") / "templates" / template).read_text("utf-8")
    return Template(text).substitute(values).encode()


def quoted(command: Sequence[str]) -> str:
    """Return a command quoted as systemd.service(5) reads it; ``%`` and ``$`` are literal."""
    return " ".join(_word(word) for word in command)


def _word(word: str) -> str:
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if any(letter in plain for letter in " \t'\\\";") else plain
