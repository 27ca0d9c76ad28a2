"""HTTP to a master: repeats what is safe to repeat, and turns every failure into a LooplineError."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Container, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any, TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError

from loopline_shared import __version__
from loopline_shared.errors import LooplineError
from loopline_shared.rest.address import API_PREFIX
from loopline_shared.rest.bodies import Problem
from loopline_shared.rest.direct import DirectWay
from loopline_shared.rest.trust import encrypted, fetch_ca, trusting

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
ENDLESS = aiohttp.ClientTimeout(total=None, sock_connect=10)
"""Timeout of an answer that may pause as long as it likes."""
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
_WITH_STANDBYS = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=15)
"""Of requests where another address is to be tried: a computer whose cable is cut says nothing."""
_STILL_HERE_EVERY_S = 30.0
NO_HURRY = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=3600)
"""Timeout of an answer that takes long to begin."""
_WHO = "give yours with --token, LOOPLINE_TOKEN or LOOPLINE_TOKEN_FILE; an admin makes them: loopline token create"
COME_AGAIN = (429, 502, 503, 504)
"""Statuses of answers that may change at the next try."""
_LONGEST_MESSAGE_BYTES = 64 * 2**20
_AWAY = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)

Model = TypeVar("Model", bound=BaseModel)


class UnavailableError(Exception):
    """Raised when there is no usable answer this time.

    ``may_have_acted``: the master may have carried out the request all the same. ``is_final``: another try at this
    address will fail in the same way.
    """

    def __init__(self, error: LooplineError, may_have_acted: bool, *, is_final: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.may_have_acted = may_have_acted
        self.is_final = is_final


class Backoff:
    """Pauses while the master is away: they double, with jitter, until ``patience_s`` are over.

    ``tries``: so often it is tried anyhow, once an address.
    """

    def __init__(self, patience_s: float, tries: int = 1) -> None:
        self._patience_s, self._tries = patience_s, tries
        self.restart()

    def restart(self) -> None:
        """Begin anew, because there was progress."""
        self._give_up = time.monotonic() + self._patience_s
        self._pause_s, self._left = FIRST_PAUSE_S, self._tries

    async def after(self, fault: UnavailableError) -> None:
        """Pause before the next try. Raises the fault's error if it is final, or if patience would end first."""
        pause_s = self._pause_s * random.uniform(0.5, 1.0)  # noqa: S311
        self._left -= 1
        if self._left <= 0 and (fault.is_final or time.monotonic() + pause_s > self._give_up):
            raise fault.error from fault
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        await asyncio.sleep(pause_s)


class Http:
    """Requests to one master's REST API."""

    def __init__(
        self, url: str, token: str | None, patience_s: float, *, ca: str = "", fingerprint: str = ""
    ) -> None:
        """Raises LooplineError if the certificate is none.

        ``url``: of the master; behind commas, of its standbys. ``fingerprint``: of the key of the CA, to fetch it.
        """
        self.addresses = [encrypted(each) if ca or fingerprint else each for each in url.split(",")]
        self._turns = deque(self.addresses)
        self._pin = "" if ca else fingerprint
        self._tls: ssl.SSLContext | bool = _trusting(ca) if ca else True
        self._headers = {"User-Agent": f"loopline/{__version__}"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._patience_s = patience_s
        self._session: aiohttp.ClientSession | None = None
        self.direct = DirectWay()

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    @property
    def url(self) -> str:
        """The address whose turn it is: the one that answered last."""
        return self._turns[0]

    def patience(self) -> Backoff:
        """Return a new Backoff for one operation, which tries each address at least."""
        return Backoff(self._patience_s, len(self.addresses))

    async def ask(self, answer: type[Model], method: str, path: str, repeat: bool = True, **options: Any) -> Model:
        """Make one request, repeated while the master is away, and return its answer.

        With ``repeat=False``, repeat it only if the master cannot have carried it out.
        """
        patience = self.patience()
        while True:
            try:
                async with self.open(method, path, **options) as response:
                    return parse(answer, await response.read())
            except UnavailableError as fault:
                if fault.may_have_acted and not repeat:
                    raise fault.error from fault
                await patience.after(fault)

    @asynccontextmanager
    async def open(
        self, method: str, path: str, allow: Container[int] = (), **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make one request, once; its answer is read inside the block.

        Raises UnavailableError, or the master's own error unless its status is in ``allow``.
        """
        with self._turning():
            async with self._open(method, path, allow, options) as response:
                yield response

    @contextmanager
    def _turning(self) -> Iterator[None]:
        """Give the next address its turn if there is no master at this one now."""
        try:
            yield
        except UnavailableError as fault:
            if fault.error.status != 429:  # it is there, and has too much to do
                self._turns.rotate(-1)
            raise

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, allow: Container[int], options: dict[str, Any]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        session = await self._ready()
        try:
            address, options = f"{self.url}{API_PREFIX}{path}", {"ssl": self._tls, **options}
            async with session.request(method, address, **options) as response:
                if response.status >= 400 and response.status not in allow:
                    raise _refusal(self.url, response.status, await response.read())
                yield response
        except aiohttp.ClientConnectorCertificateError as error:
            raise self._wrong_master(error) from error
        except _AWAY as error:
            was_sent = not isinstance(error, aiohttp.ClientConnectorError)
            raise _unreachable(self.url, error, may_have_acted=was_sent) from error

    @asynccontextmanager
    async def socket(self, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket for the block. Raises UnavailableError, or the master's own error."""
        with self._turning():
            async with self._socket(path) as opened:
                yield opened

    @asynccontextmanager
    async def _socket(self, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        session = await self._ready()
        try:
            async with session.ws_connect(
                f"{self.url}{API_PREFIX}{path}",
                ssl=self._tls,
                heartbeat=_STILL_HERE_EVERY_S,
                max_msg_size=_LONGEST_MESSAGE_BYTES,
            ) as socket:
                yield socket
        except aiohttp.WSServerHandshakeError:
            async with self._open("GET", path, (), {}):  # its answer has the reason
                pass
            raise _refusal(self.url, 502, b"") from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise self._wrong_master(error) from error
        except _AWAY as error:
            raise _unreachable(self.url, error, may_have_acted=True) from error

    async def _ready(self) -> aiohttp.ClientSession:
        """Return the session. Raises LooplineError if the master does not show the CA that was named."""
        if self._pin:
            try:
                self._tls = _trusting(await asyncio.to_thread(fetch_ca, self.url, self._pin))
            except LooplineError as error:
                if error.code == "unreachable":
                    raise UnavailableError(error, may_have_acted=False) from None
                raise
            self._pin = ""
        if self._tls is True and self.url.startswith("https:"):
            self._tls = await asyncio.to_thread(authorities)
        self._session = self._session or aiohttp.ClientSession(
            headers=self._headers, timeout=_WITH_STANDBYS if len(self.addresses) > 1 else _TIMEOUT
        )
        return self._session

    def _wrong_master(self, error: aiohttp.ClientConnectorCertificateError) -> LooplineError:
        message = f"{self.url} shows another certificate than expected: {error.certificate_error}"
        hint = (
            "`loopline login LINE` with a line of `loopline token create`; for another name of the same master, its "
        )
        hint += "operator adds it with --tls-names"
        return LooplineError("wrong_master", message, hint)


@cache
def authorities() -> ssl.SSLContext:
    """Return what trusts the authorities of this computer; aiohttp's own may trust none (import_blocker.py)."""
    return ssl.create_default_context()


def _trusting(ca: str) -> ssl.SSLContext:
    try:
        return trusting(ca)
    except (OSError, ValueError) as error:
        hint = "`loopline login LINE` again, or correct ca_file"
        raise LooplineError("certificates", f"the CA of the master cannot be read: {error}", hint) from None


_REFUSED = {
    401: LooplineError("no_token", "this needs a valid token", _WHO, 401),
    403: LooplineError("forbidden", "your token does not allow this", "ask an admin of this master", 403),
}
"""Errors for statuses of answers without a body, as answers to HEAD are."""


def parse(answer: type[Model], body: bytes) -> Model:
    """Return the body as a model. Raises LooplineError if it is none."""
    try:
        return answer.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = f"the master's answer is not a {answer.__name__}: {first['loc']}: {first['msg']}"
        raise LooplineError(
            "unexpected_answer", message, "is the address a Loopline master of this version?"
        ) from None


def _refusal(url: str, status: int, body: bytes) -> Exception:
    """Return the error that an answer stands for: UnavailableError if the request may be repeated."""
    try:
        error = problem_error(Problem.model_validate_json(body))
    except ValidationError:
        error = _REFUSED.get(status, LooplineError(
            "unexpected_answer", f"{url} answered HTTP {status}, not as a Loopline master does",
            "check the address given by --master or LOOPLINE_MASTER", status,
        ))  # fmt: skip
    return UnavailableError(error, may_have_acted=status in (502, 504)) if status in COME_AGAIN else error


def problem_error(problem: Problem) -> LooplineError:
    """Return a problem document as the error that users see."""
    mistakes = [f"{mistake.at}: {mistake.message}" for mistake in problem.errors]
    message = "\n  ".join([problem.detail or problem.title, *mistakes])
    hint = _WHO if problem.status == 401 else problem.hint
    return LooplineError(problem.code, message, hint, problem.status)


def _unreachable(url: str, error: Exception, *, may_have_acted: bool) -> UnavailableError:
    hint = "start one with `loopline master`, or give its address with --master or LOOPLINE_MASTER"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        message = f"a server answers at {url}, but not by TLS: {_reason(error)}"
        no_tls = LooplineError("unreachable", message, f"if its master is not encrypted: http{url[5:]}", 503)
        return UnavailableError(no_tls, may_have_acted, is_final=True)
    is_forbidden = _number(error) in (errno.EACCES, errno.EPERM)
    if is_forbidden:
        hint = "tasks in a sandbox cannot connect to their own computer; elsewhere a firewall forbids it"
    because = LooplineError("unreachable", f"no master answers at {url}: {_reason(error)}", hint, 503)
    return UnavailableError(because, may_have_acted, is_final=is_forbidden)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return str(error.os_error)
    if number := _number(error):
        return os.strerror(number)
    return str(error) or type(error).__name__


def _number(error: Exception) -> int:
    """Return the system's number of a failed connection; 0 if it has none."""
    return max(0, error.errno or 0) if isinstance(error, aiohttp.ClientConnectorError) else 0
