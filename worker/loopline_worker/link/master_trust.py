"""By what the master is trusted: the CA that the join line pinned, one beside the token, or one that the link named.

Where a CA is known, the master is reached by https alone, whatever its address says.
"""

from __future__ import annotations

import json
import logging
import ssl
from contextlib import suppress
from pathlib import Path

from loopline_shared.errors import LooplineError
from loopline_shared.joining import Membership
from loopline_shared.rest.trust import check_ca, encrypted, fetch_ca, pin_of, trusting
from loopline_worker.settings import WorkerSettings

log = logging.getLogger(__name__)


class MasterTrust:
    """The trust in one master. Files are read again whenever a connection is made."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._learnt = settings.data_dir / "master-ca.json"
        self._ca = self._find()
        self._context: ssl.SSLContext | None = None

    @property
    def master(self) -> str:
        """The address of the master."""
        return encrypted(self._settings.master) if self._ca else self._settings.master

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections; None for plain HTTP. Raises LooplineError if it cannot be made."""
        ca = self._find()
        if self._context is None or ca != self._ca:
            self._ca = ca
            self._context = self._new_context() if self.master.startswith("https:") else None
        return self._context

    def learn(self, ca: str) -> bool:
        """Trust the master by this CA from now on, if it proves itself by it. True if that is new. It blocks."""
        if self.master.startswith("https:"):
            return False
        try:
            check_ca(self._settings.master, ca)
        except (OSError, ValueError, LooplineError) as error:
            log.warning(
                "the master's certificate cannot be used: %s; its operator adds names with --tls-names", error
            )
            return False
        self._keep(ca)
        log.info("the master is trusted by the CA with the key %s from now on", pin_of(ca))
        return True

    def _new_context(self) -> ssl.SSLContext:
        if not self._ca:
            return ssl.create_default_context()
        try:
            return trusting(self._ca)
        except (OSError, ValueError) as error:
            hint = "join again: `loopline join LINE`, or correct ca_file"
            raise LooplineError("certificates", f"the CA of the master cannot be read: {error}", hint) from None

    def _find(self) -> str:
        settings = self._settings
        if settings.ca_file:
            return _read(settings.ca_file)
        if settings.token is None and settings.token_file is None and (member := self._member()):
            return member.ca or self._heard() or self._pinned(member.fingerprint)
        token_file = None if settings.token else settings.find_token_file()
        return (_read(token_file.with_name("ca.pem")) if token_file else "") or self._heard()

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
        self._settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._learnt.write_text(json.dumps({"master": self._settings.master, "ca": ca}), "utf-8")

    def _heard(self) -> str:
        """Return the CA that the link of this master has named; empty if none."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(self._learnt.read_text("utf-8"))
            if kept["master"] == self._settings.master:
                return str(kept["ca"])
        return ""


def _read(file: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text("ascii").strip()
    return ""
