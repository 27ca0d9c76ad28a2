"""``loopline service``: a worker that the operating system keeps running."""

from __future__ import annotations

import shlex
from typing import Annotated

from cyclopts import App, Parameter
from rich.text import Text

from loopline.cli.common import PLAIN, Common
from loopline.service import install as services
from loopline.service.install import State
from loopline.service.plans import Plan

service = App(name="service", default_parameter=Parameter(negative=(), show_default=False))

Arguments = Annotated[str, Parameter(allow_leading_hyphen=True)]


@service.command
def install(
    *arguments: Arguments,
    system: bool = False,
    user: str | None = None,
    print_: Annotated[bool, Parameter(name=["--print", "--dry-run"])] = False,
    common: Common = PLAIN,
) -> None:
    """Install a worker as a service, and start it: now, and whenever this computer starts.

    Parameters
    ----------
    arguments
        After `--`: of `loopline worker`, such as `--slots 2`; settings of loopline.toml hold as well.
    system
        For a computer that nobody sits at: a service of the system rather than of this user. Needs sudo.
    user
        With --system: who runs the tasks; never root.
    print_
        Show what would be written and run, and do nothing.
    """
    if print_:
        plan = services.plan(system, user, arguments)
        common.show(_document(plan), lambda: _shown(plan))
        return
    _show(services.install(system, user, arguments), common)


@service.command
def status(*, system: bool = False, common: Common = PLAIN) -> int:
    """Say whether it is installed and running; exit code 0 if it runs, else 1.

    Parameters
    ----------
    system
        The system's, rather than this user's.
    """
    state = services.state(system)
    _show(state, common)
    return 0 if state.running else 1


@service.command
def uninstall(*, system: bool = False, common: Common = PLAIN) -> None:
    """Stop it, and remove what was installed; what it runs is given back to the grid.

    Parameters
    ----------
    system
        The system's, rather than this user's. Needs sudo.
    """
    _show(services.uninstall(system), common)


def _show(state: State, common: Common) -> None:
    common.show(state.document, lambda: Text("\n".join([state.words, *state.files])))


def _document(plan: Plan) -> dict[str, object]:
    files = {str(file): _text(content) for file, content in plan.files.items()}
    return {"files": files, "commands": [list(command) for command in plan.install]}


def _shown(plan: Plan) -> Text:
    shown = Text()
    for file, content in plan.files.items():
        shown.append(f"{file}\n", "bold").append(f"{_text(content)}\n")
    for command in plan.install:
        shown.append(f"$ {shlex.join(command)}\n", "bold")
    return shown


def _text(content: bytes) -> str:
    return content.decode("utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8")
