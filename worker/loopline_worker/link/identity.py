"""The proof that a link is this worker's: a key of its own, its certificate, and a word beside them.

The key never leaves this computer. The master signs a certificate for it over the link, and from then on accepts no
link in this worker's name without the key, so a stolen token alone is useless. Where nothing is encrypted there is
only the word, which keeps others from taking over a link that is open.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from loopline_shared.disk.durable_files import make_folder, replace_file

log = logging.getLogger(__name__)

_RENEW_AFTER_S = 30 * 86_400.0
"""A third of a certificate's life."""
_MAKE_WITHIN_S = 60.0


class WorkerIdentity:
    """The files of an identity, made when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key, self._request = folder / "key.pem", folder / "request.pem"
        self._certificate, self._word = folder / "certificate.pem", folder / "instance"

    @property
    def instance(self) -> str:
        """The word that only this worker knows; empty if it cannot be kept."""
        if not (word := _read(self._word)):
            with suppress(OSError):
                self._write(self._word, token_hex(16))
                word = _read(self._word)
        return word

    def key_pair(self, ca: str) -> tuple[str, str] | None:
        """Return the files of certificate and key, where this CA signed it. Empty: whichever CA did."""
        certificate = _read(self._certificate)
        return (str(self._certificate), str(self._key)) if certificate and ca.strip() in certificate else None

    @property
    def is_due(self) -> bool:
        """True if there is a certificate, and it is to be renewed."""
        with suppress(OSError):
            return time.time() - self._certificate.stat().st_mtime >= _RENEW_AFTER_S
        return False

    async def request(self, ca: str) -> str:
        """Return the request for a certificate (PEM); empty if the current one is new enough, or none can be made."""
        if self.key_pair(ca) and not self.is_due:
            return ""
        if not _read(self._request):
            await self._make_key()
        return _read(self._request)

    def keep(self, certificate: str) -> None:
        """Keep the certificate that the master signed, with that of its CA behind it. Raises OSError."""
        self._write(self._certificate, certificate)

    def drop(self) -> None:
        """Forget the certificate: the master does not take it, and will sign another for the same key."""
        self._certificate.unlink(missing_ok=True)

    async def _make_key(self) -> None:
        """Make the key in a process of its own: the library for it is larger than all of an agent."""
        make_folder(self._folder)
        command = (sys.executable, "-m", "loopline_worker.link.new_key", str(self._key), str(self._request))
        try:
            making = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
            )
            async with asyncio.timeout(_MAKE_WITHIN_S):
                _, said = await making.communicate()
        except (OSError, TimeoutError) as error:
            said = str(error).encode()
        if not _read(self._request):
            log.warning("this worker has no key of its own: %s", said.decode(errors="replace").strip()[-200:])

    def _write(self, file: Path, text: str) -> None:
        make_folder(self._folder)
        replace_file(file, text.encode())


def _read(file: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text("ascii").strip()
    return ""
