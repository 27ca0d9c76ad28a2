"""``loopline service``: a worker, or a master, as a service of the operating system."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter
from rich.text import Text

from loopline.cli.common import PLAIN, Common
from loopline.cli.errors import usage
from loopline.service import install as services
from loopline.service.install import Role, State
from loopline.service.plans import Plan

service = App(name="service", default_parameter=Parameter(negative=(), show_default=False))

Arguments = Annotated[str, Parameter(allow_leading_hyphen=True)]


def with_role(words: Sequence[str]) -> list[str]:
    """Return the words with ``--role master`` for a ``--master`` that has no address behind it."""
    end = words.index("--") if "--" in words else len(words)
    found = [*words]
    for place in range(end):
        if words[place] == "--master" and (place + 1 == end or words[place + 1].startswith("-")):
            found[place : place + 1] = ["--role", "master"]
            break
    return found


@service.command
def install(
    *arguments: Arguments,
    system: bool = False,
    user: str | None = None,
    role: Role = "worker",
    print_: Annotated[bool, Parameter(name=["--print", "--dry-run"])] = False,
    common: Common = PLAIN,
) -> None:
    """Install a worker, or with --master a master, as a service: it starts now, and whenever this computer does.

    Parameters
    ----------
    arguments
        Arguments of `loopline worker` (or `master`) after `--`, such as `--slots 2`; loopline.toml applies as well.
    system
        Install a service of the system rather than of this user, for a computer that nobody sits at. Needs sudo.
    user
        One user who runs the worker and all tasks with --system, never root. Without it a user is made for the
        worker, and one for each slot.
    role
        What to install; `--master` without an address is short for `--role master`.
    print_
        Show the files and commands, and do nothing.
    """
    if common.master:
        hint = f"the master of a worker goes after `--`: loopline service install -- --master {common.master}"
        raise usage("a service is of this computer, whatever master there is", hint)
    if print_:
        plan = services.plan(system, user, arguments, role)
        common.show(_document(plan), lambda: _shown(plan))
        return
    _show(services.install(system, user, arguments, role), common)


@service.command
def status(*, system: bool = False, role: Role = "worker", common: Common = PLAIN) -> int:
    """Show if the service is installed and running; exit code 0 if it runs, else 1.

    Parameters
    ----------
    system
        The service of the system, rather than of this user.
    role
        Which service; `--master` without an address is short for `--role master`.
    """
    state = services.state(system, role=role)
    _show(state, common)
    return 0 if state.running else 1


@service.command
def uninstall(*, system: bool = False, role: Role = "worker", common: Common = PLAIN) -> None:
    """Stop the service and remove its files; running tasks are returned to the queue.

    Parameters
    ----------
    system
        The service of the system, rather than of this user. Needs sudo.
    role
        Which service; `--master` without an address is short for `--role master`.
    """
    _show(services.uninstall(system, role), common)


def _show(state: State, common: Common) -> None:
    common.show(state.document, lambda: Text("\n".join([state.words, *state.files])))


def _document(plan: Plan) -> dict[str, object]:
    files = {str(file): _text(content) for file, content in {**plan.files, **plan.beside}.items()}
    return {"files": files, "commands": [list(command) for command in plan.install]}


def _shown(plan: Plan) -> Text:
    shown = Text()
    for file, content in {**plan.files, **plan.beside}.items():
        shown.append(f"{file}\n", "bold").append(f"{_text(content)}\n")
    for command in plan.install:
        shown.append(f"$ {shlex.join(command)}\n", "bold")
    return shown


def _text(content: bytes) -> str:
    return content.decode("utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8")
