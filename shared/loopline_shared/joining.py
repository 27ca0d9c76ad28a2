"""Joining a grid: the one line that a new computer is given, and the membership that it keeps.

A computer generates its worker's token and keeps it on disk *before* it asks to join: the master receives only the
token's SHA-256. So it does not matter if either crashes half-way, or if the answer is lost: asking again with the
same line admits the same token, and counts once.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from loopline_shared.configuration.user_folders import known_user_folder, user_folder
from loopline_shared.disk.durable_files import make_folder, replace_file, sync_folder
from loopline_shared.errors import LooplineError

_LINE = re.compile(
    r"(?P<master>https?://[^\s#]+)#(?P<secret>l[jl]_[0-9a-f]+_[A-Za-z0-9_-]+)"  # the master's address and the secret
    r"(?:\.(?P<print>[0-9a-f]{64}))?"  # SHA-256 of the key of the master's CA
)
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Line:
    """``https://lab-pc:7461#SECRET``, then a dot and the pin: the SHA-256 of the key of the master's CA, if any.

    Before the ``#``, addresses of standbys may follow the master's after commas.
    """

    master: str
    secret: str
    fingerprint: str = ""

    def __str__(self) -> str:
        return f"{self.master}#{self.secret}" + (f".{self.fingerprint}" if self.fingerprint else "")


class JoinLine(Line):
    """A line with which a computer becomes a worker; its secret is a join token."""

    @classmethod
    def parse(cls, text: str) -> JoinLine:
        """Read a line. Raises ValueError if it is malformed."""
        return cls(*_parts(text, "join", "lj_", "loopline token join"))


class LoginLine(Line):
    """A line with which a user's tools find and trust a master; its secret is the user's token."""

    @classmethod
    def parse(cls, text: str) -> LoginLine:
        """Read a line. Raises ValueError if it is malformed."""
        return cls(*_parts(text, "login", "ll_", "loopline token create"))


def _parts(text: str, command: str, kind: str, source: str) -> tuple[str, str, str]:
    found = _LINE.fullmatch(text.strip().removeprefix(f"loopline {command} ").strip())
    master = ",".join(addresses_of(found["master"])) if found else ""
    if not found or not master or not found["secret"].startswith(kind):
        raise ValueError(f"expected the line that `{source}` printed, as in https://lab-pc:7461#{kind}...")
    return master, found["secret"], found["print"] or ""


@dataclass(frozen=True, slots=True)
class Membership:
    """Membership of this computer's worker in a grid: the master, the worker's name, and its own token."""

    master: str
    name: str
    token: str
    fingerprint: str = ""
    ca: str = ""  # certificate (PEM) with the key that the fingerprint names

    @classmethod
    def read(cls, file: Path | None = None) -> Membership | None:
        """Return the membership; None before joining. Raises LooplineError if the file cannot be read."""
        if file is None and known_user_folder("config") is None:
            return None
        file = file or membership_file()
        try:
            return cls(**json.loads(file.read_text("utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            hint = "join again: `loopline join LINE`"
            raise LooplineError("membership", f"cannot read {file}: {error}", hint) from None

    def write(self, file: Path | None = None) -> Path:
        """Write the file atomically, readable by this user only; it is on disk on return."""
        file = file or membership_file()
        try:
            make_folder(file.parent)
            replace_file(file, (json.dumps(asdict(self), indent=2) + "\n").encode())
        except OSError as error:
            raise LooplineError("membership", f"cannot write {file}: {error.strerror}") from None
        return file

    @staticmethod
    def confirm() -> Path:
        """Replace the membership by the requested one, which the master has granted."""
        file = membership_file()
        try:
            pending_file().replace(file)
            sync_folder(file.parent)
        except OSError as error:
            raise LooplineError("membership", f"cannot write {file}: {error.strerror}") from None
        return file


def membership_file() -> Path:
    return user_folder("config") / "membership.json"


def pending_file() -> Path:
    """Return the file of a requested membership, which leaves the present one valid until the master has answered."""
    return membership_file().with_name("membership.pending.json")


def normal_address(url: str) -> str:
    """Normalize a master's address: host in lower case, default port left out. Empty if the address is invalid."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if parts.scheme not in _PORTS:
        return ""
    name = f"[{host}]" if ":" in host else host
    at = "" if port is None or port == _PORTS[parts.scheme] else f":{port}"
    return f"{parts.scheme}://{name}{at}{parts.path.rstrip('/')}" if host else ""


def addresses_of(text: str) -> list[str]:
    """Return a master's addresses, normalized: the first, and those of its standbys behind commas.

    Empty if any is invalid.
    """
    found = [normal_address(each.strip()) for each in text.split(",")]
    return found if all(found) else []


def new_worker_token() -> str:
    return f"ll_{secrets.token_hex(4)}_{secrets.token_urlsafe(32)}"


def token_id(token: str) -> str:
    return token.split("_")[1]


def hash_of(secret: str) -> str:
    """Return the hash of a token that a master keeps."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()
