"""TLS between workers: each end shows the certificate that the grid's CA signed for its name.

The CA is the one behind our own certificate. Whom a certificate names is compared with the grant, in the handshake.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from loopline_shared.rest.trust import trusting, worker_named
from loopline_worker.link.identity import WorkerIdentity

_BEGIN = "-----BEGIN CERTIFICATE-----"


class PeerTls:
    """TLS contexts of both ends, rebuilt when our certificate was renewed."""

    def __init__(self, identity: WorkerIdentity) -> None:
        self._identity = identity
        self._made: tuple[str, ssl.SSLContext, ssl.SSLContext] | None = None

    def connected(self, link: socket.socket) -> ssl.SSLSocket:
        """Return the connection that we have made, encrypted, within its timeout. Raises OSError."""
        return self._wrapped(link, is_caller=True)

    def accepted(self, link: socket.socket) -> ssl.SSLSocket:
        """Return the connection that another worker has made. Raises OSError."""
        return self._wrapped(link, is_caller=False)

    def _wrapped(self, link: socket.socket, *, is_caller: bool) -> ssl.SSLSocket:
        _, calling, listening = self._contexts()
        context = calling if is_caller else listening
        return context.wrap_socket(link, server_side=not is_caller)

    def _contexts(self) -> tuple[str, ssl.SSLContext, ssl.SSLContext]:
        """Return our certificate and the contexts with it, which are replaced, never changed: any thread may ask."""
        pair = self._identity.key_pair("")
        if pair is None:
            raise ssl.SSLError("this worker has no certificate")
        certificate = Path(pair[0]).read_text("ascii")
        if self._made is None or self._made[0] != certificate:
            ca = certificate[certificate.rindex(_BEGIN) :]
            calling, listening = trusting(ca, pair), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            calling.check_hostname = False  # it has the name of a worker, not of a host
            listening.minimum_version = ssl.TLSVersion.TLSv1_3
            listening.verify_mode = ssl.CERT_REQUIRED
            listening.load_verify_locations(cadata=ca)
            listening.load_cert_chain(*pair)
            listening.num_tickets = 0
            self._made = certificate, calling, listening
        return self._made


def worker_at(link: socket.socket) -> str | None:
    """Return the worker at the other end as its certificate names it, or an empty text; None: it is not encrypted."""
    return worker_named(link.getpeercert()) if isinstance(link, ssl.SSLSocket) else None
