"""Encryption of the master's port, and the certificate it shows: a master speaks TLS beyond loopback.

It makes a CA of its own in the folder ``certificates``, unless its operator gives a certificate.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from loopline_master.certificates.own_names import own_names
from loopline_master.files.private_files import read_private, write_private
from loopline_master.settings import MasterSettings
from loopline_master.timings import LOOK_AT_CERTIFICATES_EVERY_S, RENEW_LOOK_EVERY_S
from loopline_shared.disk.durable_files import make_folder
from loopline_shared.errors import LooplineError
from loopline_shared.rest.trust import pin_of

if TYPE_CHECKING:
    from loopline_master.certificates.authority import Authority

log = logging.getLogger(__name__)
_IN_NO_NAME = re.compile(r"[^A-Za-z0-9.-]")
_WHATEVER_DATE = ssl.VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME, which Python has no name for


class Encryption:
    """The TLS of the master's port. Certificates are read and renewed while it serves."""

    def __init__(self, settings: MasterSettings, *, is_waiting: bool = False) -> None:
        """Raises LooplineError if the certificate cannot be read or made.

        ``is_waiting``: another master may be making the CA of the folder now, so that this one makes none.
        """
        self._settings, self._is_waiting = settings, is_waiting
        self.folder = settings.data_dir / "certificates"
        self._authority: Authority | None = None
        self.context: ssl.SSLContext | None = None
        """The context of new connections; None in plain HTTP."""
        self._began = asyncio.Event()
        self._loaded: object = None  # the files in the context
        self._renewed_at = -RENEW_LOOK_EVERY_S
        if self._is_wanted():
            self._begin()

    @property
    def is_on(self) -> bool:
        """True if the port speaks TLS."""
        return self.context is not None

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

    async def keep_fresh(self) -> None:
        """Renew the certificate before it ends, and read the operator's again when it changes."""
        await self._began.wait()
        while True:
            await asyncio.sleep(LOOK_AT_CERTIFICATES_EVERY_S)
            with suppress(OSError):
                await asyncio.to_thread(self._refresh)

    def _is_wanted(self) -> bool:
        settings = self._settings
        if self._is_waiting and settings.standby and not (self.folder / "ca.pem").exists():
            return False
        if settings.tls or settings.tls_cert:
            return settings.tls != "off"
        return not settings.is_private

    def _begin(self) -> None:
        from loopline_master.certificates.authority import Authority  # not where nothing is encrypted: it is large

        make_folder(self.folder)
        self._authority = self._authority or Authority(self.folder)
        try:
            self._refresh()
            self._began.set()
        except OSError as error:
            message = f"cannot read the certificate or its key: {error.strerror or error}"
            raise LooplineError("certificates", message, "correct --tls-cert and --tls-key") from None

    def _refresh(self) -> None:
        """Serve new connections by the certificate that is there now; OSError if it cannot be read.

        The context is replaced, never changed: handshakes under way need a certificate with its own key.
        """
        self._renew()
        files = self._files()
        state = [(file.stat().st_mtime_ns, file.stat().st_ino) for file in files]
        if state == self._loaded:
            return
        try:
            self.context = _context_of(files, self._authority)
        except OSError:  # also if only one of the two files has been replaced
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
    """Return the context of new connections, where workers may show certificates signed by the CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(*files)
    if authority:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= _WHATEVER_DATE
        context.load_verify_locations(cadata=authority.certificate)
    return context
