"""``loopline login``: remember a master, a token and the CA to trust it by; ``loopline tls``: how it is encrypted."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.text import Text

from loopline.cli.common import PLAIN, Common, read_by
from loopline.cli.errors import usage
from loopline.cli.render import human
from loopline.client import AsyncClient
from loopline.settings import Login, login_file
from loopline_shared.errors import LooplineError
from loopline_shared.joining import LoginLine
from loopline_shared.rest.access import EncryptionView
from loopline_shared.rest.trust import encrypted, fetch_ca

_PATIENCE_S = 10.0
_LONGEST_LINE = 1000

tls = App(name="tls", default_parameter=Parameter(negative=(), show_default=False))


def _read_line() -> LoginLine:
    """Return the line on stdin, where it stays out of the shell's history. Raises LooplineError (usage)."""
    if sys.stdin.isatty():
        print("the line that `loopline token create` printed: ", end="", file=sys.stderr, flush=True)
    try:
        return LoginLine.parse(sys.stdin.readline(_LONGEST_LINE))
    except ValueError as error:
        raise usage(str(error), "give it behind `loopline login`, or on stdin") from None


async def login(
    line: Annotated[LoginLine | None, read_by(LoginLine.parse, "LINE")] = None, /, *, common: Common = PLAIN
) -> None:
    """Remember a master and your token, with the line that `loopline token create` printed.

    All commands and programs of this user then find the master, trust it by the key that the line names, and use the
    token. --master, LOOPLINE_MASTER and their like go before it.

    Parameters
    ----------
    line
        The whole line, or its part after `loopline login`; without it, it is read from stdin.
    """
    if common.master or common.token:
        raise usage("the line has the address and the token already", "leave --master and --token out")
    line = line or _read_line()
    ca = await asyncio.to_thread(fetch_ca, line.master, line.fingerprint) if line.fingerprint else ""
    async with AsyncClient(line.master, line.secret, patience_s=_PATIENCE_S, ca=ca or None) as client:
        who = await client.whoami()
        file = Login(client.master, line.secret, ca).write()
    document: dict[str, Any] = {"master": client.master, "name": who.name, "role": who.role, "file": str(file)}
    known = ", known by its key from now on" if ca else ""
    common.show(document, lambda: Text(f"you are {who.name} ({who.role}) at {client.master}{known}"))


async def logout(*, common: Common = PLAIN) -> None:
    """Forget what `loopline login` keeps. The token stays valid: `loopline token revoke` ends it."""
    known = Login.read()
    if known is None:
        raise LooplineError("not_logged_in", "no login is stored here", "there is nothing to remove")
    login_file().unlink(missing_ok=True)
    common.show({"master": known.master}, lambda: Text(f"{known.master} and its token are forgotten here"))


@tls.command
async def show(*, common: Common = PLAIN) -> None:
    """Show the encryption of the connection and the fingerprint of the master's key."""
    async with common.client() as client:
        view = await client.encryption()
        master = client.master
    common.show(view, lambda: _told(view, master))


def _told(view: EncryptionView, master: str) -> Text:
    if not view.is_on:
        return Text("plain HTTP, for this computer alone or behind a proxy that encrypts")
    text = Text("TLS 1.3")
    if view.pin:
        text.append(f", by the grid's own CA, whose key has the SHA-256\n  {view.pin}")
        text.append("\nlines of `loopline token create` and `loopline token join` carry it")
        first = encrypted(master.partition(",")[0])
        text.append(f"\na browser trusts the master once it has imported {first}/ca.pem")
    else:
        text.append(", by the certificate that its operator gave")
    text.append(f"\nfor {', '.join(view.names)}" if view.pin else "")
    if view.expires_at is not None:
        text.append(f"\nuntil {human.moment(view.expires_at)}, renewed before")
    return text
