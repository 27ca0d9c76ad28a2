"""Secrets that the master's first start writes: the tokens for this user's own tools, and the session key."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from secrets import token_bytes

from loopline_master.certificates.encryption import Encryption
from loopline_master.files.private_files import read_private, write_private
from loopline_master.http.auth import Auth
from loopline_master.settings import MasterSettings
from loopline_shared.disk.durable_files import make_folder
from loopline_shared.rest.access import Role

_KEY_BYTES = 32


def session_key(settings: MasterSettings) -> bytes:
    """Return the key that seals session cookies; create it if there is no valid one."""
    return _key_in(_token_folder(settings) / "session-key")


def peer_key(settings: MasterSettings) -> bytes:
    """Return the key from which the keys of serving workers are derived; create it if there is no valid one."""
    return _key_in(_token_folder(settings) / "peer-key")


def job_key(settings: MasterSettings) -> bytes:
    """Return the key that seals the secrets of jobs; create it if there is no valid one."""
    return _key_in(_token_folder(settings) / "job-key")


def make_keys(settings: MasterSettings) -> None:
    """Create the missing keys. Each waits for the disk twice, so run this beside other work of a start."""
    for key in (job_key, session_key, peer_key):
        key(settings)


def read_key(file: Path) -> bytes:
    """Return the key in a file; empty if there is no valid one."""
    with suppress(ValueError):
        if len(key := bytes.fromhex(read_private(file))) >= _KEY_BYTES:
            return key
    return b""


def _key_in(file: Path) -> bytes:
    if key := read_key(file):
        return key
    key = token_bytes(_KEY_BYTES)
    write_private(file, key.hex())
    return key


async def write_first_tokens(auth: Auth, settings: MasterSettings) -> None:
    """Write a token for this user's command line and one for workers, unless valid ones exist."""
    folder = _token_folder(settings)
    also = [settings.worker_token_file] if settings.worker_token_file else []
    await _leave_token(auth, "admin", [folder / "admin"])
    await _leave_token(auth, "worker", [folder / "worker", *also])


def write_ca(encryption: Encryption, settings: MasterSettings) -> None:
    """Write the CA's certificate beside the tokens for their users; remove it if this master has no CA."""
    files = [_token_folder(settings) / "ca.pem"]
    files += [settings.worker_token_file.with_name("ca.pem")] if settings.worker_token_file else []
    for file in files:
        if not encryption.ca:
            file.unlink(missing_ok=True)
        elif read_private(file) != encryption.ca.strip():
            write_private(file, encryption.ca)


def _token_folder(settings: MasterSettings) -> Path:
    folder = settings.data_dir / "tokens"
    make_folder(folder)
    folder.chmod(0o700)
    return folder


async def _leave_token(auth: Auth, role: Role, files: list[Path]) -> None:
    secret = read_private(files[0])
    caller = await auth.by_secret(secret)
    if caller is None or caller.role != role:
        secret = (await auth.create(role, role)).secret
    for file in files:
        if read_private(file) != secret:
            write_private(file, secret)
