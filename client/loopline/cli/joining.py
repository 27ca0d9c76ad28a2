"""``loopline join``: make a computer a worker with one line."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from loopline.cli.common import PLAIN, Common, read_by
from loopline.cli.errors import usage
from loopline.client import AsyncClient
from loopline.programs import program
from loopline.service import install as services
from loopline_shared.errors import LooplineError
from loopline_shared.joining import (
    JoinLine,
    Membership,
    hash_of,
    membership_file,
    new_worker_token,
    pending_file,
    token_id,
)
from loopline_shared.rest.access import JoinRequest
from loopline_shared.rest.trust import fetch_ca

_PATIENCE_S = 10.0
_ASK_WITHIN_S = 60.0
_LONGEST_LINE = 1000


def _read_line() -> JoinLine:
    """Return the line on stdin, where it stays out of the shell's history. Raises LooplineError (usage)."""
    if sys.stdin.isatty():
        print("the line that `loopline token join` printed: ", end="", file=sys.stderr, flush=True)
    try:
        return JoinLine.parse(sys.stdin.readline(_LONGEST_LINE))
    except ValueError as error:
        raise usage(str(error), "give it behind `loopline join`, or on stdin") from None


async def join(
    line: Annotated[JoinLine | None, read_by(JoinLine.parse, "LINE")] = None,
    /,
    *,
    name: str | None = None,
    service: Annotated[bool, Parameter(negative=())] = False,
    no_sandbox: Annotated[bool, Parameter(negative=())] = False,
    common: Common = PLAIN,
) -> None:
    """Make this computer a worker, with the line that `loopline token join` printed.

    The membership is kept in the configuration folder, readable by this user alone. After an error or interruption,
    run the same line again: it counts once.

    Parameters
    ----------
    line
        The whole line, or its part after `loopline join`; without it, it is read from stdin.
    name
        Name of the worker (default: made from the name of this computer).
    service
        Also install the worker as a service of this user, and start it.
    no_sandbox
        Join although tasks can have no sandbox here, or shall have none: they may then use all that this user may.
    """
    if common.master or common.token:
        raise usage("the line has the address and the token already", "leave --master and --token out")
    line = line or _read_line()
    walls = _sandbox(no_sandbox)
    ca = await asyncio.to_thread(fetch_ca, line.master, line.fingerprint) if line.fingerprint else ""
    member = replace(_prepared(line, name), ca=ca)
    try:
        await _ask(line, member)
    except LooplineError as error:
        if error.code != "join_token_refused":
            raise
        member = replace(member, token=new_worker_token())  # the earlier token was revoked
        await _ask(line, member)
    file = Membership.confirm()
    document: dict[str, Any] = {"worker": member.name, "master": member.master, "file": str(file)}
    document |= {"sandbox": walls["sandbox"]} if walls else {}
    if service:
        document["service"] = _install(member, no_sandbox)
    common.show(document, lambda: _told(member, service, walls.get("means", "")))


async def leave(*, here_only: Annotated[bool, Parameter(negative=())] = False, common: Common = PLAIN) -> None:
    """Undo what `loopline join` did here: the service, lingering, the membership and its token at the master.

    What runs here returns to the queue. The worker's data folder stays: results that the master does not have may be
    in it. Run it again if it was broken off.

    Parameters
    ----------
    here_only
        Leave the token valid: another computer has a copy of this one's identity, or the master is gone for good.
    """
    member = Membership.read() or Membership.read(pending_file())
    if member is None:
        raise LooplineError("not_joined", "this computer has not joined any master", "there is nothing to remove")
    had_service = services.is_installed()
    if had_service:
        services.uninstall()
    if not here_only:
        await _revoke(member)
    for file in (membership_file(), pending_file()):
        file.unlink(missing_ok=True)
    told = f"this computer is no longer {member.name} of {member.master}"
    told += "\nits token is still valid" if here_only else "\nits token is revoked"
    told += "\nits service is removed" if had_service else "\nif a worker was started by hand, stop it"
    document = {"worker": member.name, "master": member.master, "revoked": not here_only, "service": had_service}
    common.show(document, lambda: Text(told))


async def _revoke(member: Membership) -> None:
    """Have the master revoke the token, unless it is invalid already. Raises LooplineError if that cannot be had."""
    try:
        async with AsyncClient(
            member.master, member.token, patience_s=_PATIENCE_S, ca=member.ca or None, fingerprint=member.fingerprint
        ) as client:
            await client.leave()
    except LooplineError as error:
        if error.status == 401:
            return  # an admin revoked it, or a try before this one did
        hint = f"later again; or leave with --here-only, and an admin: loopline token revoke {token_id(member.token)}"
        raise LooplineError(error.code, f"the token is not revoked: {error.message}", hint, error.status) from None


async def _ask(line: JoinLine, member: Membership) -> None:
    """Keep the token and ask to be let in. The token is written first, so that a repeated request is the same."""
    member.write(pending_file())
    wish = JoinRequest(
        secret=line.secret, worker=member.name, token=token_id(member.token), hash=hash_of(member.token)
    )
    async with AsyncClient(line.master, patience_s=_PATIENCE_S, ca=member.ca or None) as client:
        await client.join(wish)


def _sandbox(none_asked: bool) -> dict[str, str]:
    """Return which sandbox tasks have here; empty where no worker is installed. Raises LooplineError for none.

    A container is let in without one: nothing of an owner is in it.
    """
    if none_asked:
        return {"sandbox": "none", "means": "tasks run without a sandbox and may use all that this user may"}
    try:
        ask = program("loopline_worker.doctor", "worker", "--sandbox")
        asked = subprocess.run(ask, capture_output=True, check=True, timeout=_ASK_WITHIN_S)
        found: dict[str, Any] = json.loads(asked.stdout)
    except (LooplineError, OSError, subprocess.SubprocessError, ValueError):
        return {}
    if found["sandbox"] == "none" and not found["contained"] and sys.platform == "linux":
        hint = "install bubblewrap (on Debian or Ubuntu: sudo apt install bubblewrap), or join with --no-sandbox"
        message = f"strangers' programs could use all that this user may: {found['reason']}"
        raise LooplineError("no_sandbox", message, hint)
    return found


def _install(member: Membership, no_sandbox: bool) -> dict[str, Any]:
    """Install the service, with the arguments of the service that it replaces."""
    arguments = services.arguments()
    if no_sandbox and "--no-sandbox" not in arguments:
        arguments = (*arguments, "--no-sandbox")
    try:
        return services.install(arguments=arguments).document
    except LooplineError as error:
        message = f"this computer has joined as {member.name}, but as for the service: {error.message}"
        raise LooplineError(error.code, message, error.hint, error.status) from None


def _prepared(line: JoinLine, name: str | None) -> Membership:
    """Return the membership to ask for; that of an interrupted try is used again, and that of the grid elsewhere."""
    for file in (pending_file(), membership_file()):
        before = _kept(file)
        if before and _is_of_grid(before, line) and name in (None, before.name):
            return replace(before, master=line.master, fingerprint=line.fingerprint)
    return Membership(line.master, name or _made_up_name(), new_worker_token(), line.fingerprint)


def _is_of_grid(member: Membership, line: JoinLine) -> bool:
    """True if the line is of the membership's master, which may have moved: it is known by the key of its CA."""
    return member.master == line.master or "" != line.fingerprint == member.fingerprint


def _kept(file: Path) -> Membership | None:
    """Return the membership in a file, or None if the file is missing or unreadable."""
    with suppress(LooplineError):
        return Membership.read(file)
    return None


def _made_up_name() -> str:
    host = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname().partition(".")[0]).strip("-")
    return f"{host[:80] or 'worker'}-{secrets.token_hex(2)}"


def _told(member: Membership, is_service: bool, means: str) -> Text:
    text = Text(f"this computer has joined {member.master} as {member.name}")
    text.append("\nits worker runs as a service" if is_service else "\nstart it: loopline worker")
    if means:
        text.append(f"\n{means}")
    if not is_service:
        text.append("\nor keep it running, also after a restart: loopline service install")
    return text
