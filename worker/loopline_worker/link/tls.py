"""TLS contexts for a link to ``https://``."""

from __future__ import annotations

import hashlib
import hmac
import ssl


def usual() -> ssl.SSLContext:
    """Return a context that trusts the authorities of this computer."""
    return ssl.create_default_context()


def pinned(sha256: bytes) -> ssl.SSLContext:
    """Return a context for the one certificate with this SHA-256, which is checked before a byte is sent."""

    def check(link: ssl.SSLObject | ssl.SSLSocket) -> None:
        certificate = link.getpeercert(binary_form=True) or b""
        if not hmac.compare_digest(hashlib.sha256(certificate).digest(), sha256):
            raise ssl.SSLCertVerificationError("the master's certificate is not the one that the join line named")

    class Pinned(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            check(self)

    class PinnedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            check(self)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslobject_class, context.sslsocket_class = Pinned, PinnedSocket
    return context
