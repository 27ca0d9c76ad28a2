"""Webhooks: a signed POST (standardwebhooks.com) to addresses that this master may call.

A user who submits jobs could otherwise reach, through the master, hosts that only the master can reach: addresses
that are not public are called only if ``webhook_hosts`` allows them. The address that is called is the very one
that was checked.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from secrets import token_bytes

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver
from standardwebhooks import Webhook
from yarl import URL

from loopline_master.files.private_files import read_private, write_private
from loopline_master.timings import WEBHOOK_WITHIN_S
from loopline_shared.errors import LooplineError

NO_ANSWER, REFUSED = "no_answer", "webhook_refused"
"""Error codes of receivers: no answer in time, and an answer with an error."""
_PREFIX = "whsec_"
_SECRET_BYTES = 24
_WITHIN = aiohttp.ClientTimeout(total=WEBHOOK_WITHIN_S)
_IPV4_WITHIN = [ipaddress.IPv6Network(net) for net in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16")]
"""A gateway may translate such an address to any IPv4 address, including one that is not public."""
_NOT_ALLOWED = "its administrator may allow it: webhook_hosts in the master's settings"


class WebhookSecrets:
    """The secret of each user, by which the receiver of a webhook knows that a job of this user is meant.

    It is derived from the master's secret, so that nothing is stored for it.
    """

    def __init__(self, folder: Path) -> None:
        self._shared = secret_in(folder)

    def of(self, user: str) -> str:
        """Return the secret of a user, as a library of Standard Webhooks takes it."""
        derived = hmac.digest(self._shared.encode(), f"webhooks of {user}".encode(), "sha256")
        return _PREFIX + base64.b64encode(derived[:_SECRET_BYTES]).decode()

    def signature(self, user: str, message_id: str, at: datetime, body: str) -> str:
        """Return the header that signs a message."""
        return Webhook(self.of(user)).sign(message_id, at, body)


class Webhooks:
    """Sends webhooks. Close it after use."""

    def __init__(self, secrets: WebhookSecrets, allowed: Sequence[str]) -> None:
        """``allowed``: hosts and networks that may be called although they are not public."""
        self._secrets = secrets
        self._resolver = _PublicResolver(allowed)
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections; ``send`` opens new ones."""
        if self._http:
            http, self._http = self._http, None
            await http.close()

    async def send(self, url: str, message_id: str, body: str, user: str) -> None:
        """Send a message about a job of this user. Raises LooplineError if no server accepted it."""
        now = datetime.now(UTC)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "loopline",
            "webhook-id": message_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": self._secrets.signature(user, message_id, now, body),
        }
        try:
            self._resolver.check_host(URL(url).host or "")
            async with (await self._session()).post(url, data=body, headers=headers, allow_redirects=False) as answer:
                if answer.status >= 300:
                    raise LooplineError(REFUSED, f"it answered HTTP {answer.status}")
        except TimeoutError as error:
            raise LooplineError(NO_ANSWER, f"it had not answered after {WEBHOOK_WITHIN_S:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise LooplineError("webhook", str(error) or type(error).__name__) from error

    async def _session(self) -> aiohttp.ClientSession:
        tls = await asyncio.to_thread(_authorities)  # which are read from disk
        if self._http is None:
            connector = aiohttp.TCPConnector(resolver=self._resolver, use_dns_cache=False, ssl=tls)
            self._http = aiohttp.ClientSession(connector=connector, timeout=_WITHIN, trust_env=False)
        return self._http


@cache
def _authorities() -> ssl.SSLContext:
    """Return what trusts the authorities of this computer: aiohttp's own trusts none here (import_blocker.py)."""
    return ssl.create_default_context()


def secret_in(folder: Path) -> str:
    """Return the master's secret for webhooks; create it if there is none."""
    file = folder / "webhook-secret"
    if not read_private(file):
        write_private(file, _PREFIX + base64.b64encode(token_bytes(_SECRET_BYTES)).decode())
    return file.read_text("ascii").strip()


class _PublicResolver(AbstractResolver):
    """Resolves host names to those addresses that may be called."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._hosts = {host.lower() for host in allowed}
        self._networks = [network for text in allowed if (network := _network(text))]
        self._resolver: AbstractResolver | None = None

    def check_host(self, host: str) -> None:
        """Raises LooplineError if the host of a URL is an address that may not be called.

        ``resolve`` does not see such hosts: only names are resolved.
        """
        address = _address(host)
        if address is not None and not self._may_call(address):
            raise LooplineError("webhook", f"{host} is not a public address, and is not called; {_NOT_ALLOWED}")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host that may be called. Raises OSError if there are none."""
        self._resolver = self._resolver or DefaultResolver()
        found = await self._resolver.resolve(host, port, family)
        callable_ = [one for one in found if host.lower() in self._hosts or self._may_call(_address(one["host"]))]
        if not callable_:
            raise OSError(f"{host} has no public address, and is not called; {_NOT_ALLOWED}")
        return callable_

    async def close(self) -> None:
        """Close the resolver."""
        if self._resolver:
            await self._resolver.close()

    def _may_call(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
        if address is None:
            return False
        plain = getattr(address, "ipv4_mapped", None) or address
        is_public = plain.is_global and not plain.is_multicast and not any(plain in net for net in _IPV4_WITHIN)
        return is_public or str(plain) in self._hosts or any(plain in network for network in self._networks)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None
