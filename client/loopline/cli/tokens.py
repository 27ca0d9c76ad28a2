"""``loopline token``: access tokens and join tokens."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter
from rich.text import Text

from loopline.cli.common import PLAIN, Common, read_by, some
from loopline.cli.errors import usage
from loopline.cli.render import human, tables
from loopline.cli.values import duration, need
from loopline.client import AsyncClient
from loopline.settings import is_here
from loopline_shared.errors import LooplineError
from loopline_shared.joining import JoinLine, LoginLine
from loopline_shared.rest.access import JoinTokenCreated, Offers, Role, TokenCreated

_Offers = Annotated[tuple[str, ...], Parameter(metavar="NAME=UNITS")]

token = App(name="token", default_parameter=Parameter(negative=(), show_default=False))


@token.command
async def create(
    name: str,
    /,
    *,
    role: Role = "user",
    expires: Annotated[float | None, read_by(duration, "DURATION")] = None,
    offers: _Offers = (),
    address: str | None = None,
    common: Common = PLAIN,
) -> None:
    """Create a token and show its secret, once, with the line by which its user logs in.

    Parameters
    ----------
    name
        Name of the user or worker that will use it.
    role
        Rights of the token: everything (admin), submitting jobs (user), reading (reader), being a worker, or
        /metrics and nothing else (scraper).
    expires
        Time until it expires, such as 12h or 90d (default: it is of use until it is revoked).
    offers
        Units of a resource that a worker with it may offer at most, such as fpga=1 or gpu=2; it may not offer other
        resources. Repeatable. `none`: no resource (default: any).
    address
        Address at which its user reaches the master, if it is not yours.
    """
    async with common.client() as client:
        created = await client.create_token(name, role, expires, _bound(offers))
        place = address.rstrip("/") if address else _place(client, created.address)
    line = LoginLine(place, created.secret, created.fingerprint)
    document = created.model_dump(mode="json")
    if role not in ("worker", "scraper") and line.master:
        document["line"] = f"loopline login {line}"
    common.show(document, lambda: _secret(created, document.get("line", "")), whole=True)


@token.command(name="list")
async def list_(*, common: Common = PLAIN) -> None:
    """List the tokens, without their secrets: when each was last used, and from where."""
    async with common.client() as client:
        items = await some(0, client.tokens())
    common.show(items, lambda: tables.tokens(items))


@token.command
async def revoke(token: str, /, *, common: Common = PLAIN) -> None:
    """Revoke a token, at once and for good.

    Parameters
    ----------
    token
        Id of the token, as listed.
    """
    async with common.client() as client:
        try:
            revoked = await client.revoke_token(token)
        except LooplineError as error:
            if error.status != 404:
                raise
            line = await client.revoke_join_token(token)
            common.show(
                line, lambda: Text(f"join token {line.id} is revoked: {line.used} of {line.uses} have joined")
            )
            return
    common.show(revoked, lambda: Text(f"token {revoked.id} of {revoked.name} is revoked"))


@token.command(name="webhook-secret")
async def webhook_secret(*, common: Common = PLAIN) -> None:
    """Print the secret by which the receiver of your jobs' webhooks (--notify URL) can check them."""
    async with common.client() as client:
        secret = await client.webhook_secret()
    common.show({"secret": secret}, lambda: Text(secret), whole=True)


@token.command
async def join(
    *,
    uses: int = 1,
    expires: Annotated[float, read_by(duration, "DURATION")] = 86400.0,
    offers: _Offers = (),
    address: str | None = None,
    common: Common = PLAIN,
) -> None:
    """Create a join token and print the line with which a new computer joins as a worker.

    Parameters
    ----------
    uses
        Number of computers that may join with it.
    expires
        Time until it expires, such as 24h or 7d.
    offers
        Units of a resource that each of them may offer at most, such as fpga=1 or gpu=2; they may not offer other
        resources. Repeatable. `none`: no resource (default: any).
    address
        Address at which those computers reach the master, if it is not yours.
    """
    async with common.client() as client:
        created = await client.create_join_token(uses, expires, _bound(offers))
        place = address.rstrip("/") if address else _place(client, created.address)
    line = JoinLine(place, created.secret, created.fingerprint)
    document = {**created.model_dump(mode="json"), "line": f"loopline join {line}"}
    common.show(document, lambda: _line(line, created), whole=True)


@token.command
async def joins(*, common: Common = PLAIN) -> None:
    """List the join tokens, without their secrets."""
    async with common.client() as client:
        items = await some(0, client.join_tokens())
    common.show(items, lambda: tables.join_tokens(items))


def _bound(given: tuple[str, ...]) -> Offers | None:
    """Return the units of each resource; None if any may be offered. Raises LooplineError (usage)."""
    if not given:
        return None
    try:
        return {} if given == ("none",) else dict(map(need, given))
    except ValueError as error:
        raise usage(f"--offers: {error}", "`--offers none` alone allows no resource") from None


def _place(client: AsyncClient, address: str) -> str:
    """Return the address for a line; where we know several, they are all of the same masters for others, too."""
    return client.master if "," in client.master else address


def _line(line: JoinLine, created: JoinTokenCreated) -> Text:
    who = "one computer" if created.uses == 1 else f"{created.uses} computers"
    text = Text.assemble((f"loopline join {line}", "bold"), f"\nfor {who}, until {human.moment(created.expires_at)}")
    if is_here(line.master):
        text.append(
            "\nonly this computer can reach that address: run the master with --host 0.0.0.0, or give --address"
        )
    return text


def _secret(created: TokenCreated, line: str) -> Text:
    text = Text.assemble((created.secret, "bold"), "\nkeep it: it is not shown again", f" (token {created.id})")
    if created.expires_at is not None:
        text.append(f"\nit expires {human.moment(created.expires_at)}")
    if line:
        text.append("\nor, with the master's address, on its user's computer:\n").append(line, "bold")
    return text
