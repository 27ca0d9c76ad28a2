"""Access tokens: of a secret only its SHA-256 is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, or_, select, update

from loopline_master.store.database import Transact
from loopline_master.store.past.clock import LEAD_S
from loopline_master.store.queries.paging import after, page_of, word
from loopline_master.store.tables import join_tokens, tokens
from loopline_shared.rest.access import JoinTokenView, TokenView
from loopline_shared.rest.bodies import Page

TOKEN_REFUSED = "its token is another worker's, or revoked"  # noqa: S105 - no secret
"""The reason to refuse a computer that should generate another token."""


_USED = (
    update(tokens)
    .where(tokens.c.id == bindparam("of"))
    .values(used_at=bindparam("at"), used_from=bindparam("address"))
)


class TokenStore:
    """Stores tokens and join tokens."""

    def __init__(self, read: Transact, write: Transact) -> None:
        self._read, self._write = read, write

    async def add(self, token: TokenView, hash_: str) -> None:
        """Store a new token. ``hash_``: its secret's SHA-256, in hex."""
        row = {**token.model_dump(), "hash": hash_}
        await self._write(lambda connection: connection.execute(insert(tokens), row))

    async def revoke(self, token_id: str, at: float) -> TokenView | None:
        """Revoke a token and return it, even if it was revoked before; None if there is none."""
        here = tokens.c.id == token_id
        change = update(tokens).where(here, tokens.c.revoked_at.is_(None)).values(revoked_at=at)

        def work(connection: Connection) -> TokenView | None:
            connection.execute(change)
            return _view(connection.execute(select(tokens).where(here)).first())

        return await self._write(work)

    async def note_uses(self, uses: Mapping[str, tuple[float, str]]) -> None:
        """Store when and from where tokens were used, by their ids."""
        rows = [{"of": token, "at": at, "address": address} for token, (at, address) in uses.items()]
        await self._write(lambda connection: connection.execute(_USED, rows))

    async def add_join_token(self, token: JoinTokenView, hash_: str) -> None:
        """Store a new join token. ``hash_``: its secret's SHA-256, in hex."""
        row = {**token.model_dump(), "hash": hash_}
        await self._write(lambda connection: connection.execute(insert(join_tokens), row))

    async def knows_join_token(self, hash_: str) -> bool:
        """True if there is a join token with this secret, whether it is still good or not."""
        query = select(join_tokens.c.id).where(join_tokens.c.hash == hash_)
        return await self._read(lambda connection: connection.scalar(query)) is not None

    async def join(self, hash_: str, token: TokenView, token_hash: str) -> TokenView | str:
        """Use a join token and store a worker's new token, both or neither; or return the reason of a refusal.

        A token that is stored already takes no second use: its computer repeats a request whose answer was lost.
        """

        def work(connection: Connection) -> TokenView | str:
            row = connection.execute(select(join_tokens).where(join_tokens.c.hash == hash_)).first()
            if row is None:
                return "it is not known here"
            of_either = select(tokens).where(or_(tokens.c.id == token.id, tokens.c.hash == token_hash))
            if known := connection.execute(of_either).all():
                is_this = _is_this(known, token, token_hash)
                return TokenView(**known[0]._mapping) if is_this else TOKEN_REFUSED
            if reason := _unfit(row, token.created_at) or _taken(connection, token.worker):
                return reason
            used = update(join_tokens).where(join_tokens.c.id == row.id).values(used=row.used + 1)
            connection.execute(used)
            joined = token.model_copy(update={"offers": row.offers})
            connection.execute(insert(tokens), {**joined.model_dump(), "hash": token_hash})
            return joined

        return await self._write(work)

    async def revoke_join_token(self, token_id: str, at: float) -> JoinTokenView | None:
        """Revoke a join token and return it, even if it was revoked before; None if there is none."""
        here = join_tokens.c.id == token_id
        change = update(join_tokens).where(here, join_tokens.c.revoked_at.is_(None)).values(revoked_at=at)

        def work(connection: Connection) -> JoinTokenView | None:
            connection.execute(change)
            row = connection.execute(select(join_tokens).where(here)).first()
            return None if row is None else JoinTokenView(**row._mapping)

        return await self._write(work)

    async def join_tokens(self, *, cursor: str | None = None, limit: int = 100) -> Page[JoinTokenView]:
        """Return a page of join tokens, by id."""
        table = join_tokens
        query = select(table).where(table.c.id > after(cursor, word, "")).order_by(table.c.id).limit(limit + 1)
        rows = await self._read(lambda connection: connection.execute(query).all())
        return page_of([JoinTokenView(**row._mapping) for row in rows], limit, lambda token: token.id)

    async def by_hash(self, hash_: str) -> TokenView | None:
        """Return the token of this secret, even if it is revoked; None if there is none."""
        query = select(tokens).where(tokens.c.hash == hash_)
        return _view(await self._read(lambda connection: connection.execute(query).first()))

    async def of_workers(self) -> set[str]:
        """Return the ids of the tokens that are each one worker's."""
        query = select(tokens.c.id).where(tokens.c.worker.is_not(None))
        return await self._read(lambda connection: set(connection.scalars(query)))

    async def is_taken(self, worker: str) -> bool:
        """True if a computer has joined under this name."""
        return bool(await self._read(lambda connection: _taken(connection, worker)))

    async def page(self, *, cursor: str | None = None, limit: int = 100) -> Page[TokenView]:
        """Return a page of tokens, by id."""
        query = select(tokens).where(tokens.c.id > after(cursor, word, "")).order_by(tokens.c.id).limit(limit + 1)
        rows = await self._read(lambda connection: connection.execute(query).all())
        return page_of([TokenView(**row._mapping) for row in rows], limit, lambda token: token.id)


def _unfit(join_token: Row[Any], now: float) -> str:
    if join_token.revoked_at is not None:
        return "it was revoked"
    if join_token.expires_at < now:
        return "it has expired"
    if join_token.created_at > now + LEAD_S:  # otherwise it would be valid for as long as the clock was set back
        return "this master's clock was set back since it was created"
    return "it has been used up" if join_token.used >= join_token.uses else ""


def _is_this(known: Sequence[Row[Any]], token: TokenView, hash_: str) -> bool:
    """True if the stored tokens of this id or hash are this one token alone, and valid."""
    (row, *others) = known
    is_same = (row.id, row.hash, row.name) == (token.id, hash_, token.name)
    return is_same and row.revoked_at is None and not others


def _taken(connection: Connection, worker: str | None) -> str:
    """Return the refusal if another computer has joined under this name.

    Two computers with one name could not be distinguished: the first keeps the name until its token is revoked.
    """
    held = select(tokens.c.id).where(tokens.c.worker == worker, tokens.c.revoked_at.is_(None))
    holder = connection.execute(held).first()
    return f"a computer has joined as {worker} already; another --name, or revoke {holder.id}" if holder else ""


def _view(row: Row[Any] | None) -> TokenView | None:
    return None if row is None else TokenView(**row._mapping)
