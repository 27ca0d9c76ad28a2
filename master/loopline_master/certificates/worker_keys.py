"""The keys of workers: certificates for them, and whether a link is really that of the worker that it names.

A worker sends the request for a certificate with its Hello, and shows the certificate when it connects again. From
then on its token is good with this key alone. The date of a certificate counts between workers, not here: a computer
that was off for a year has its token and its key, and is given a new one.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from loopline_master.certificates.encryption import Encryption
from loopline_master.files.private_files import read_private, write_private
from loopline_master.store.token_store import TokenStore
from loopline_shared.disk.durable_files import make_folder
from loopline_shared.errors import LooplineError, ProtocolError
from loopline_shared.protocol.worker_link import Hello, Refused
from loopline_shared.rest.trust import WORKER_URI, pin_of, worker_named

_NAME_HINT = "start it without --name, or join again with the line that `loopline token join` prints"
_JOIN_AGAIN = "join again with a line of `loopline token join`; if it is not yours, revoke its token"
_LEAVE_FIRST = "if it is yours, run `loopline leave` there and join again with a line; otherwise revoke its token"


@dataclass(frozen=True, slots=True)
class Bearer:
    """The token that admitted a link."""

    token: str  # its id
    worker: str | None  # the only worker that it is valid for; None: any
    offers: Mapping[str, int] | None = None  # units of resources that it may offer at most; None: any


@dataclass(frozen=True, slots=True)
class Shown:
    """The certificate that a connection has shown: its worker, and the SHA-256 of its key; empty without one."""

    worker: str = ""
    key: str = ""


def shown_by(request: web.Request) -> Shown:
    """Return what the other end of a connection has proved by TLS."""
    connection = request.get_extra_info("ssl_object")
    certificate: bytes | None = connection.getpeercert(binary_form=True) if connection else None
    if certificate is None:
        return Shown()
    return Shown(worker_named(connection.getpeercert()), pin_of(ssl.DER_cert_to_PEM_cert(certificate)))


class WorkerKeys:
    """Signs certificates of workers, and remembers the key of each token."""

    def __init__(self, encryption: Encryption, tokens: TokenStore) -> None:
        self._encryption, self._tokens = encryption, tokens

    async def admit(self, hello: Hello, bearer: Bearer, shown: Shown) -> Refused | str:
        """Return the certificate that the worker asks for, or the refusal of a link that is another's.

        The CA's certificate stands behind it; empty: it asks for none. Raises ProtocolError if its request is none.
        """
        if bearer.worker not in (None, hello.worker):
            return Refused("wrong_name", f"this token is worker {bearer.worker}'s, not {hello.worker}'s", _NAME_HINT)
        if not await self.may_claim(hello.worker, bearer):
            return Refused("wrong_key", f"the name {hello.worker} is another computer's", _JOIN_AGAIN)
        if not self._encryption.is_on:
            return ""
        if shown.worker not in ("", hello.worker):
            return Refused("wrong_name", f"this certificate is worker {shown.worker}'s", _JOIN_AGAIN)
        certificate = self._certificate(hello)
        keys = {shown.key, pin_of(certificate) if certificate else ""} - {""}
        if bearer.worker and self._has_another_key(bearer, keys):
            message = f"worker {hello.worker} had another key: its data folder is lost, or it is another computer"
            return Refused("wrong_key", message, _LEAVE_FIRST)
        if shown.key and bearer.worker:
            self._keep(bearer, shown.key)
        return certificate and f"{certificate}{self._encryption.authority_certificate}"

    async def may_claim(self, worker: str, bearer: Bearer) -> bool:
        """True if the token is good for this name: its own, or a shared one while no computer has joined under it."""
        if bearer.worker is not None:
            return bearer.worker == worker
        return not bearer.token or not await self._tokens.is_taken(worker)

    def _has_another_key(self, bearer: Bearer, keys: set[str]) -> bool:
        known = read_private(self._file(bearer))
        return bool(known) and keys != {known}

    def _keep(self, bearer: Bearer, key: str) -> None:
        file = self._file(bearer)
        if not read_private(file):
            make_folder(file.parent)
            write_private(file, key)

    def _file(self, bearer: Bearer) -> Path:
        return self._encryption.folder / "workers" / bearer.token

    def _certificate(self, hello: Hello) -> str:
        authority = self._encryption.authority
        if not hello.request or authority is None:
            return ""
        try:
            return authority.certify(hello.request, WORKER_URI + hello.worker)
        except LooplineError as error:
            raise ProtocolError(error.message) from None
