"""The address of a client behind a configured proxy, from the header that the proxy writes.

Otherwise all users would have the proxy's address in the audit log, and when wrong secrets are counted. The header is
ignored if it comes from any other address.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

Address = IPv4Address | IPv6Address
HEADER = "X-Forwarded-For"


def behind_proxies(proxies: Collection[Address]) -> Middleware:
    """Return a middleware that gives requests from these proxies the address of their client."""

    @web.middleware
    async def forwarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if HEADER in request.headers and _parse(request.remote or "") in proxies:
            client = client_of(request.headers.getall(HEADER), proxies)
            if client is not None:
                request = request.clone(remote=str(client))
        return await handler(request)

    return forwarded


def client_of(headers: Collection[str], proxies: Collection[Address]) -> Address | None:
    """Return the last address that belongs to no proxy; None if it cannot be read.

    Each proxy appends the address that it sees, so earlier entries were written by the client.
    """
    found = None
    for word in reversed(",".join(headers).split(",")):
        found = _parse(word.strip())
        if found is None or found not in proxies:
            return found
    return found


def _parse(word: str) -> Address | None:
    """Return an address, which may have a port; None if this is not one."""
    if word.startswith("["):
        word = word[1:].partition("]")[0]
    elif word.count(":") == 1:
        word = word.partition(":")[0]
    try:
        found = ip_address(word.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
