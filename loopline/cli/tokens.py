"""``loopline token``: who may do what."""

from __future__ import annotations

from cyclopts import App, Parameter
from rich.text import Text

from loopline.cli import tables
from loopline.cli.common import PLAIN, Common, some
from shared.api import Role, TokenCreated

token = App(name="token", default_parameter=Parameter(negative=(), show_default=False))


@token.command
async def create(name: str, /, *, role: Role = "user", common: Common = PLAIN) -> None:
    """Create a token; its secret is shown this once.

    Parameters
    ----------
    name
        Whose it is: a user or a worker.
    role
        What it allows: everything (admin), submitting jobs (user), looking (reader), or joining as a worker.
    """
    async with common.client() as client:
        created = await client.create_token(name, role)
    common.show(created, lambda: _secret(created))


@token.command(name="list")
async def list_(*, common: Common = PLAIN) -> None:
    """List the tokens, without their secrets."""
    async with common.client() as client:
        items = await some(0, client.tokens())
    common.show(items, lambda: tables.tokens(items))


@token.command
async def revoke(token: str, /, *, common: Common = PLAIN) -> None:
    """Revoke a token, at once and for good.

    Parameters
    ----------
    token
        Its id, as listed.
    """
    async with common.client() as client:
        revoked = await client.revoke_token(token)
    common.show(revoked, lambda: Text(f"token {revoked.id} of {revoked.name} is revoked"))


def _secret(created: TokenCreated) -> Text:
    return Text.assemble((created.secret, "bold"), "\nkeep it: it is not shown again", f" (token {created.id})")
