"""The encryption of the master's port: by which certificate, and whether plain HTTP is answered beside it.

A data folder of this release has a folder `certificates`, and its master speaks TLS beyond loopback. One of an
earlier release has none: its master goes on in plain HTTP until `loopline tls enable`, and then answers both on one
port for a while, so that workers can learn of the CA over their link and users log in again.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from loopline_master.certificates.own_names import own_names
from loopline_master.files.private_files import read_private, write_private
from loopline_master.settings import MasterSettings
from loopline_master.timings import LOOK_AT_CERTIFICATES_EVERY_S, RENEW_LOOK_EVERY_S
from loopline_shared.errors import LooplineError
from loopline_shared.rest.trust import pin_of

if TYPE_CHECKING:
    from loopline_master.certificates.authority import Authority

log = logging.getLogger(__name__)
_IN_NO_NAME = re.compile(r"[^A-Za-z0-9.-]")
_WHATEVER_DATE = ssl.VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME, which Python has no name for


def prepare_folder(data_dir: Path) -> None:
    """Make the folder of certificates in a new data folder: one that has neither database nor tokens."""
    if not any((data_dir / name).exists() for name in ("loopline.db", "tokens")):
        (data_dir / "certificates").mkdir(mode=0o700, exist_ok=True)


class Encryption:
    """The TLS of the master's port. Certificates are read and renewed while it serves."""

    def __init__(self, settings: MasterSettings, *, is_waiting: bool = False) -> None:
        """Raises LooplineError if the certificate cannot be read or made.

        ``is_waiting``: another master may be making the CA of the folder now, so that this one makes none.
        """
        self._settings, self._is_waiting = settings, is_waiting
        self.folder = settings.data_dir / "certificates"
        self._until_file = self.folder / "plain-until"
        self._authority: Authority | None = None
        self.context: ssl.SSLContext | None = None
        """The context of new connections; None in plain HTTP."""
        self._began = asyncio.Event()
        self._loaded: object = None  # what stands in the context
        self._renewed_at = -RENEW_LOOK_EVERY_S
        self.plain_until = _number(read_private(self._until_file))
        self.is_plain_answered = True
        """True while requests in plain HTTP are served."""
        self.on_plain_ended: Callable[[], None] = lambda: None
        if self._is_wanted():
            self._begin()

    @property
    def is_on(self) -> bool:
        """True if the port speaks TLS."""
        return self.context is not None

    @property
    def is_missing(self) -> bool:
        """True if others connect, in plain HTTP, without a proxy that encrypts before."""
        settings = self._settings
        return not (self.is_on or settings.is_private or settings.tls == "off")

    @property
    def authority(self) -> Authority | None:
        """The CA; None where nothing is encrypted."""
        return self._authority

    @property
    def authority_certificate(self) -> str:
        """The certificate of the CA that signs those of workers, in PEM; empty where nothing is encrypted."""
        return self._authority.certificate if self._authority else ""

    @property
    def ca(self) -> str:
        """The certificate to trust this master by, in PEM; empty where the operator gave the master's own, or in
        plain HTTP.
        """
        return self._authority.certificate if self._authority and not self._settings.tls_cert else ""

    @property
    def pin(self) -> str:
        """The SHA-256 of the CA's key, for lines; empty where there is none to pin."""
        return pin_of(self.ca) if self.ca else ""

    @property
    def names(self) -> list[str]:
        """The names that the master's certificate has."""
        return own_names(self._settings.host, self._settings.tls_names)

    @property
    def expires_at(self) -> float | None:
        """When the certificate that is served ends, to be renewed before."""
        if not self.is_on:
            return None
        from loopline_master.certificates.authority import ends_at

        return ends_at(self._files()[0].read_text("ascii"))

    def enable(self, plain_for_s: float) -> None:
        """Speak TLS from now on, and plain HTTP for so long beside it. Raises LooplineError if that cannot be."""
        if self._settings.tls == "off":
            hint = "start the master without --tls off"
            raise LooplineError("tls_off", "this master was started with --tls off", hint, status=409)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.plain_until = time.time() + plain_for_s
        write_private(self._until_file, f"{self.plain_until:.0f}")
        self._begin()

    async def keep_fresh(self) -> None:
        """Renew the certificate before it ends, read the operator's again when it changes, and end plain HTTP."""
        await self._began.wait()
        while True:
            await asyncio.sleep(LOOK_AT_CERTIFICATES_EVERY_S)
            with suppress(OSError):
                await asyncio.to_thread(self._refresh)
            was_plain, self.is_plain_answered = self.is_plain_answered, time.time() < self.plain_until
            if was_plain and not self.is_plain_answered:
                log.info("plain HTTP is no longer answered")
                self.on_plain_ended()

    def _is_wanted(self) -> bool:
        settings = self._settings
        if self._is_waiting and settings.standby and not (self.folder / "ca.pem").exists():
            return False
        if settings.tls or settings.tls_cert:
            return settings.tls != "off"
        return self._until_file.exists() or (self.folder.is_dir() and not settings.is_private)

    def _begin(self) -> None:
        from loopline_master.certificates.authority import Authority  # not where nothing is encrypted: it is large

        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._authority = self._authority or Authority(self.folder)
        try:
            self._refresh()
            self.is_plain_answered = time.time() < self.plain_until
            self._began.set()
        except OSError as error:
            message = f"cannot read the certificate or its key: {error.strerror or error}"
            raise LooplineError("certificates", message, "correct --tls-cert and --tls-key") from None

    def _refresh(self) -> None:
        """Serve new connections by the certificate that is there now; OSError if it cannot be read.

        The context is replaced, never changed: handshakes go on meanwhile, and need a certificate and its own key.
        """
        self._renew()
        files = self._files()
        state = [(file.stat().st_mtime_ns, file.stat().st_ino) for file in files]
        if state == self._loaded:
            return
        try:
            self.context = _context_of(files, self._authority)
        except OSError:  # also where one of two files has been replaced so far
            log.warning("the certificate in %s is not the one of the key in %s", *files)
            raise
        self._loaded = state

    def _renew(self) -> None:
        """Make another certificate if ours will end, or names another computer."""
        is_soon = time.monotonic() - self._renewed_at < RENEW_LOOK_EVERY_S
        if self._settings.tls_cert or self._authority is None or is_soon:
            return
        self._renewed_at = time.monotonic()
        from loopline_master.certificates.authority import is_for

        certificate, key = self._files()
        names = self.names
        if not is_for(read_private(certificate), names):
            made, secret = self._authority.serve_as(names)
            write_private(key, secret)
            write_private(certificate, made)
            log.info("a certificate was made for %s", ", ".join(names))

    def _files(self) -> tuple[Path, Path]:
        settings = self._settings
        if settings.tls_cert:
            return settings.tls_cert, settings.tls_key or settings.tls_cert
        # Two masters of one folder are on two computers: each has a certificate of its own, by the one CA.
        mine = f"server-{_IN_NO_NAME.sub('-', socket.gethostname())}" if settings.standby else "server"
        return self.folder / f"{mine}.pem", self.folder / f"{mine}.key"


def _context_of(files: tuple[Path, Path], authority: Authority | None) -> ssl.SSLContext:
    """Return the context of new connections, in which workers may show the certificates that the CA signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(*files)
    if authority:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= _WHATEVER_DATE
        context.load_verify_locations(cadata=authority.certificate)
    return context


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
