"""Trust in the master: the CA pinned by the join line, or the one beside the token.

With a known CA the master is reached only by https, even if its address says http.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections import deque
from contextlib import suppress
from pathlib import Path

from loopline_shared.disk.durable_files import make_folder
from loopline_shared.errors import LooplineError
from loopline_shared.joining import Membership
from loopline_shared.rest.trust import encrypted, fetch_ca, trusting
from loopline_worker.link.identity import WorkerIdentity
from loopline_worker.settings import WorkerSettings

log = logging.getLogger(__name__)


class MasterTrust:
    """The trust in one master. Files are read again whenever a connection is made."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._addresses = deque((settings.master, *settings.other_masters))
        self._fetched_ca = settings.data_dir / "master-ca.json"
        self._ca = self._find()
        self._context: ssl.SSLContext | None = None
        self._shown: tuple[str, str] | None = None
        self.identity = WorkerIdentity(settings.data_dir / "identity")

    @property
    def master(self) -> str:
        """The address of the master; of several, the one whose turn it is."""
        return encrypted(self._addresses[0]) if self._ca else self._addresses[0]

    def turn_to_next(self) -> None:
        """Try the next of several addresses: at this one there is no master now."""
        self._addresses.rotate(-1)

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections; None for plain HTTP. Raises LooplineError if it cannot be made."""
        ca = self._find()
        shown = self.identity.key_pair(ca)
        if self._context is None or (ca, shown) != (self._ca, self._shown):
            self._ca, self._shown = ca, shown
            self._context = self._new_context() if self.master.startswith("https:") else None
        return self._context

    async def request(self) -> str:
        """Return the request for a certificate; empty if it is not needed."""
        return await self.identity.request(self._ca) if self.master.startswith("https:") else ""

    def keep(self, certificate: str) -> bool:
        """Keep our certificate. True if the worker must reconnect with it."""
        if not certificate:
            return False
        is_first = self.identity.key_pair(self._ca) is None
        self.identity.keep(certificate)
        self._context = None
        return is_first

    def drop_shown(self) -> bool:
        """Drop the certificate that we have shown, which may bear a name of before. False if there is none."""
        if not self._shown:
            return False
        self.identity.drop()
        return True

    def refused(self, error: ssl.SSLError) -> None:
        """Have another certificate made if the master, which may have another CA now, does not take ours."""
        if self._shown and not isinstance(error, ssl.SSLCertVerificationError):
            self.identity.drop()

    def _new_context(self) -> ssl.SSLContext:
        try:
            context = trusting(self._ca) if self._ca else ssl.create_default_context()
            if self._shown:
                context.load_cert_chain(*self._shown)
            return context
        except (OSError, ValueError) as error:
            hint = "join again: `loopline join LINE`, or correct ca_file"
            raise LooplineError("certificates", f"the CA of the master cannot be read: {error}", hint) from None

    def _find(self) -> str:
        settings = self._settings
        if settings.ca_file:
            return _read(settings.ca_file)
        if settings.token is None and settings.token_file is None and (member := self._member()):
            return member.ca or self._fetched() or self._pinned(member.fingerprint)
        token_file = None if settings.token else settings.find_token_file()
        return _read(token_file.with_name("ca.pem")) if token_file else ""

    def _member(self) -> Membership | None:
        member = Membership.read()
        return member if member and self._settings.belongs_to(member) else None

    def _pinned(self, pin: str) -> str:
        """Return the CA with this key, which a membership without the CA itself names."""
        if not pin:
            return ""
        ca = fetch_ca(self._settings.master, pin)
        self._keep(ca)
        return ca

    def _keep(self, ca: str) -> None:
        make_folder(self._settings.data_dir)
        self._fetched_ca.write_text(json.dumps({"master": self._settings.master, "ca": ca}), "utf-8")

    def _fetched(self) -> str:
        """Return the CA that was fetched from this master before, by its pin; empty if none."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(self._fetched_ca.read_text("utf-8"))
            if kept["master"] == self._settings.master:
                return str(kept["ca"])
        return ""


def _read(file: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text("ascii").strip()
    return ""
