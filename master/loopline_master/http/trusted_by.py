"""Trust in this master: lines for joining and logging in, and certificates that browsers import."""

from __future__ import annotations

from aiohttp import web

from loopline_master.certificates import own_names
from loopline_master.certificates.encryption import Encryption
from loopline_master.http.auth import OPEN, READERS
from loopline_master.http.operations import Routes
from loopline_master.settings import MasterSettings, is_loopback
from loopline_shared.errors import LooplineError
from loopline_shared.rest.access import EncryptionView
from loopline_shared.rest.address import API_PREFIX
from loopline_shared.rest.trust import CA_PATH, encrypted

routes = Routes("access", prefix="")
PEM = "application/octet-stream"  # browsers save it, and generated clients support it


@routes(f"GET {CA_PATH}", OPEN, media_type=PEM, declines=(404,))
async def get_ca(encryption: Encryption) -> web.Response:
    """Return the certificate of this grid's CA, for browsers to trust; lines carry the SHA-256 of its key."""
    if not encryption.ca:
        message = "this master has no CA of its own"
        raise LooplineError("no_ca", message, "it uses plain HTTP, or its operator's certificate", status=404)
    return web.Response(body=encryption.ca.encode(), content_type=PEM)


@routes(f"GET {API_PREFIX}/tls", READERS)
async def get_encryption(encryption: Encryption) -> EncryptionView:
    """Return how this master's port is encrypted."""
    if not encryption.is_on:
        return EncryptionView(is_on=False)
    return EncryptionView(
        is_on=True, pin=encryption.pin, names=tuple(encryption.names), expires_at=encryption.expires_at
    )


def reached_at(request: web.Request, settings: MasterSettings, encryption: Encryption) -> dict[str, str]:
    """Return the address of this request (over loopback: one that other computers reach) and the pin."""
    origin = request.url.origin()
    if not settings.is_private and is_loopback(request.url.host or ""):
        origin = origin.with_host(own_names.reached_at(settings.host).strip("[]"))
    address = str(origin)
    return {
        "address": encrypted(address) if encryption.is_on else address,
        "fingerprint": encryption.pin,
    }
