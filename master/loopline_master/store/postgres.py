"""PostgreSQL: connections by libpq's URLs, with time limits on every operation.

Where a server restarts, hangs or is cut off, a statement fails within these limits, and ``is_passing`` says that no
action is needed. The server notices within half a minute that a master is gone, whose lock then is free.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoneFreeError

from loopline_shared.errors import LooplineError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

DRIVER = "postgresql+asyncpg"
CONNECT_WITHIN_S = 10.0
STATEMENT_WITHIN_S = 60.0
_SAID_WITHIN_S = 65.0
"""The server ends long statements itself; a server that is silent for this long is given up."""
_ACKNOWLEDGED_WITHIN_S = 8.0
"""A connection without acknowledgements for this long, as behind a cut cable, is given up."""
_CLOSE_WITHIN_S = 5.0
_SESSION = """
SET statement_timeout = {limit_ms}; SET idle_in_transaction_session_timeout = {limit_ms};
SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
SET tcp_user_timeout = 30000
"""
_PASSING = (
    "08",  # the connection
    "57P",  # the server stops, crashed, or is starting
    "53300",  # too many connections
    "57014",  # a statement took too long
    "25P03",  # so did a transaction: the master stood still
    "25006",  # read only: not yet the primary after a fail-over
)
"""Beginnings of SQLSTATEs that pass by themselves."""
_CLIENT_ERRORS = {"InterfaceError", "InternalClientError"}
"""asyncpg's names for a connection that ended while it was used."""
_NONE: Mapping[str, str] = {}


def parse_postgres(text: str) -> URL:
    """Return a URL of libpq's form: several hosts, ``sslmode`` and the like. Raises ValueError if it is none."""
    parts = urlsplit(text)
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return URL.create(
        DRIVER,
        username=unquote(user) or None,
        password=unquote(password) or None,
        host=(hosts if "," in hosts else parts.hostname) or None,
        port=None if "," in hosts else parts.port,
        database=unquote(parts.path.lstrip("/")) or None,
        query=query,
    )


def dsn_of(url: URL) -> str:
    """Return the URL as libpq has it."""
    user = quote(url.username or "", safe="") + (f":{quote(str(url.password), safe='')}" if url.password else "")
    query = urlencode({name: str(value) for name, value in url.query.items()})
    host = url.host or ""
    host = f"[{host}]" if ":" in host and "," not in host else host  # IPv6
    host += f":{url.port}" if url.port is not None else ""
    return f"postgresql://{user}{'@' if user else ''}{host}/{quote(url.database or '')}" + (
        f"?{query}" if query else ""
    )


@asynccontextmanager
async def connections(
    url: URL, count: int, *, is_limited: bool = True, server_settings: Mapping[str, str] = _NONE, **options: Any
) -> AsyncIterator[AsyncEngine]:
    """Open a pool of ``count`` connections. ``is_limited``: statements have a time limit (all but migrations)."""
    from sqlalchemy.ext.asyncio import create_async_engine  # slow to import, and SQLite does not need it

    opened: list[Any] = []
    with _explaining_missing():
        import asyncpg

        async def connect() -> Any:
            one = await asyncpg.connect(
                dsn_of(url),
                timeout=CONNECT_WITHIN_S,
                command_timeout=_SAID_WITHIN_S if is_limited else None,
                server_settings=dict(server_settings),
                **({} if "target_session_attrs" in url.query else {"target_session_attrs": _session_of(url)}),
            )
            _limit_silence(one)
            opened[:] = [*(known for known in opened if not known.is_closed()), one]
            await one.execute(_SESSION.format(limit_ms=round(STATEMENT_WITHIN_S * 1000) if is_limited else 0))
            return one

        engine = create_async_engine(
            URL.create(DRIVER), async_creator=connect, pool_size=count, max_overflow=0, **options
        )
    try:
        yield engine
    finally:
        # Each ends within its time; the pool would wait for a server that is gone, and log how it was interrupted.
        await asyncio.gather(*(one.close(timeout=_CLOSE_WITHIN_S) for one in opened), return_exceptions=True)
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await engine.dispose()


@asynccontextmanager
async def connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open one connection. It does not go back to its pool, which would wait for a server that is gone."""
    connection = await engine.connect()
    try:
        yield connection
    finally:
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await connection.invalidate()  # closes it in two seconds, or ends it
                await connection.close()


def is_passing(error: BaseException) -> bool:
    """True if the failure passes by itself, without a person's help."""
    for one in _causes(error):
        state = getattr(one, "sqlstate", None)
        if state is not None and str(state).startswith(_PASSING):
            return True
        if isinstance(one, OSError | NoneFreeError):  # none of the pool's connections gets an answer
            return True
        if isinstance(one, DBAPIError) and one.connection_invalidated:
            return True
        if type(one).__module__.startswith("asyncpg") and _CLIENT_ERRORS & {
            each.__name__ for each in type(one).__mro__
        }:
            return True  # the connection was closed in the middle of something
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = getattr(one, "orig", None) or one.__cause__


def _session_of(url: URL) -> str:
    """Return the requirement on the server when several are given: it accepts writes."""
    return "primary" if "," in (url.host or "") else "any"


def _limit_silence(connection: Any) -> None:
    """Have the system end a connection in time, where it can: in a long cut it tries again ever more rarely."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    used = connection._transport.get_extra_info("socket")
    if option is not None and used is not None and used.family != socket.AF_UNIX:
        used.setsockopt(socket.IPPROTO_TCP, option, round(_ACKNOWLEDGED_WITHIN_S * 1000))


@contextmanager
def _explaining_missing() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        hint = "pip install 'loopline[master,postgres]'"
        raise LooplineError("missing_driver", f"{error.name} is not installed", hint) from None
