"""How a link to ``https://`` is secured."""

from __future__ import annotations

import hashlib
import hmac
import ssl


def usual() -> ssl.SSLContext:
    """Whoever this computer believes."""
    return ssl.create_default_context()


def pinned(sha256: bytes) -> ssl.SSLContext:
    """The one certificate with this SHA-256, whoever signed it; checked before a byte is sent."""

    class Pinned(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            certificate = self.getpeercert(binary_form=True) or b""
            if not hmac.compare_digest(hashlib.sha256(certificate).digest(), sha256):
                raise ssl.SSLCertVerificationError("the master's certificate is not the one that the join line named")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslobject_class = Pinned
    return context
