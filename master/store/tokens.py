"""Access tokens: a secret is kept as its SHA-256 only."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from master.store.database import Transact
from master.store.pages import after, page_of, word
from master.store.tables import tokens
from master.store.writer import Writer
from shared.api import Page, TokenView


class Tokens:
    def __init__(self, read: Transact, writer: Writer) -> None:
        self._read = read
        self._writer = writer

    async def add(self, token: TokenView, hash_: str) -> None:
        """Keep a new token. ``hash_``: its secret's SHA-256, in hex."""
        row = {**token.model_dump(), "hash": hash_}
        await self._writer.write(lambda connection: connection.execute(insert(tokens), row))

    async def revoke(self, token_id: str, at: float) -> TokenView | None:
        """The token, revoked now or before; None: there is none."""
        here = tokens.c.id == token_id
        change = update(tokens).where(here, tokens.c.revoked_at.is_(None)).values(revoked_at=at)

        def work(connection: Connection) -> TokenView | None:
            connection.execute(change)
            return _view(connection.execute(select(tokens).where(here)).first())

        return await self._writer.write(work)

    async def by_hash(self, hash_: str) -> TokenView | None:
        """The token of this secret, revoked ones included."""
        query = select(tokens).where(tokens.c.hash == hash_)
        return _view(await self._read(lambda connection: connection.execute(query).first()))

    async def page(self, *, cursor: str | None = None, limit: int = 100) -> Page[TokenView]:
        """In order of their ids."""
        query = select(tokens).where(tokens.c.id > after(cursor, word, "")).order_by(tokens.c.id).limit(limit + 1)
        rows = await self._read(lambda connection: connection.execute(query).all())
        return page_of([TokenView(**row._mapping) for row in rows], limit, lambda token: token.id)


def _view(row: Row[Any] | None) -> TokenView | None:
    return None if row is None else TokenView(**row._mapping)
