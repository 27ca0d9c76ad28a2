"""The first process of a service whose tasks have users of their own: it starts the agent and is its zygote.

    python -I -S .../supervisor/users/service.py [--user NAME] --tasks-as USERS -- COMMAND...

systemd starts it as the agent's user with the capabilities to kill, and to take on other users and groups; a
container starts it as root with these alone, and ``--user`` says whom it turns into. COMMAND, the agent, has none.
USERS: the beginning of names that end in 1, 2 and so on, or a range of numbers such as 61001-61008.
It imports the standard library only.
"""

from __future__ import annotations

import os
import pwd
import signal
import socket
import sys
from contextlib import suppress

if __name__ == "__main__":
    _HERE = os.path.realpath(__file__)
    sys.path.append(os.path.abspath(f"{_HERE}/../../../.."))  # noqa: PTH100 - isolated, it finds nothing else of ours

from loopline_worker.supervisor import requests
from loopline_worker.supervisor.users import credentials, slot_users
from loopline_worker.supervisor.users.credentials import TaskUser
from loopline_worker.supervisor.users.slot_users import SlotUsers
from loopline_worker.supervisor.zygote import Zygote

_REFUSED = 2
"""The exit code of wrong options, after which a service is not started again."""
_UMASK = 0o077
"""Of the agent: what it writes is nobody else's."""


def main(words: list[str]) -> int:
    """Run the service until the agent has ended; return the agent's exit code."""
    try:
        user, names, command = _parse(words)
        users = _settle(user, names)
    except (LookupError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return _REFUSED
    ours, agents = socket.socketpair()
    agent = _start(command, agents, [user.gid for user in users])
    agents.close()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda signum, _: _pass_on(agent, signum))
    zygote = Zygote(ours, SlotUsers(users), agent)
    zygote.run()
    code = os.waitstatus_to_exitcode(zygote.agent_status)
    return code if code >= 0 else 128 - code


def _parse(words: list[str]) -> tuple[str, str, list[str]]:
    """Return the agent's user (empty: as it is), the tasks' users, and the agent's command."""
    end = words.index("--") if "--" in words else len(words)
    options = dict(zip(words[:end:2], words[1:end:2], strict=False))
    if end % 2 or not options.keys() <= {"--user", "--tasks-as"} or "--tasks-as" not in options:
        raise ValueError("the words are [--user NAME] --tasks-as USERS -- COMMAND...")
    if not words[end + 1 :]:
        raise ValueError("there is no command after --")
    return options.get("--user", ""), options["--tasks-as"], words[end + 1 :]


def _settle(user: str, names: str) -> list[TaskUser]:
    """Switch to the agent's user, keeping the capabilities to start others. Return these users. Raises ValueError."""
    if not credentials.is_possible():
        raise ValueError(
            f"no calls are known for {sys.platform} on {os.uname().machine}: run `loopline worker` itself"
        )
    if os.geteuid() == 0:
        if not user:
            raise ValueError("--user NAME is missing: the agent does not run as root")
        entry = pwd.getpwnam(user)
        credentials.settle(TaskUser(entry.pw_uid, entry.pw_gid))
        os.environ["HOME"] = entry.pw_dir
    if os.geteuid() == 0 or not credentials.has_needed():
        raise ValueError("CAP_SETUID, CAP_SETGID and CAP_KILL are missing: systemd's AmbientCapabilities= gives them")
    credentials.keep_only(credentials.NEEDED)
    credentials.give_up_more()
    users = slot_users.find(names)
    if not users:
        raise ValueError(f"there is no user {names}1: `loopline service install --system` makes them")
    if any(one.uid in (0, os.getuid()) or one.gid in (0, os.getgid()) for one in users):
        raise ValueError("a task's user is root or the agent itself")
    return users


def _pass_on(agent: int, signum: int) -> None:
    """Let the agent decide when it is over; once it has ended, it is."""
    with suppress(ProcessLookupError):
        os.kill(agent, signum)


def _start(command: list[str], connection: socket.socket, groups: list[int]) -> int:
    """Start the agent: in the groups of all tasks' users, and without any capability. Return its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        credentials.end_with_parent(signal.SIGTERM)
        credentials.join(groups)
        credentials.keep_only(frozenset())
        os.umask(_UMASK)
        connection.set_inheritable(True)
        os.execve(command[0], command, {**os.environ, requests.VARIABLE: str(connection.fileno())})  # noqa: S606
    except OSError as error:
        print(f"error: cannot start {command[0]}: {error.strerror}", file=sys.stderr)
    os._exit(_REFUSED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
