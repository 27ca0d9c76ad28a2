"""The data folder: created if missing, and checked if a master has worked in it before.

A part that is missing is never replaced silently. The consequence depends on the loss:

| missing | lost with it | consequence |
| --- | --- | --- |
| the database, or all its rows | every job | the master does not start |
| ``files``, or what is in their bucket | inputs and results | it does not start, if jobs name files |
| ``tokens/job-key`` | secrets of jobs | it does not start, if tasks that are to run have some |
| ``tokens/session-key``, ``webhook-secret`` | sign-ins; the receivers' trust | a warning |
| ``certificates``, or a key in it | the trust of all computers | it does not start |

An operator without a backup creates a file ``NAME.is-lost`` beside the missing part.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from contextlib import suppress
from pathlib import Path

from loopline_master.certificates.job_secrets import SEALED
from loopline_master.files.bucket import Bucket
from loopline_master.files.private_files import read_private
from loopline_master.http.token_files import read_key
from loopline_master.settings import MasterSettings
from loopline_master.store import Store
from loopline_master.store.database import is_sqlite, parse_url
from loopline_master.store.migrate import database_lost
from loopline_shared.disk.durable_files import make_folder
from loopline_shared.errors import LooplineError

log = logging.getLogger(__name__)
_FILES = re.compile(r"[0-9a-f]{2}")
_JOBS_NAMED = 5


def make(folder: Path) -> None:
    """Make the folder, unless it is there. Raises LooplineError if it cannot be written."""
    try:
        make_folder(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        hint = "choose another with --data-dir"
        raise LooplineError("data_dir", f"cannot write into the folder {folder}: {error.strerror}", hint) from None


def has_worked(settings: MasterSettings) -> bool:
    """True if a master has worked in this folder: there are its keys, or files of jobs.

    Raises LooplineError if the file of its database is then gone or empty, or its CA is gone.
    """
    certificates = settings.data_dir / "certificates"
    if (settings.data_dir / "tokens" / "ca.pem").exists() and not _names(certificates):
        if not _is_given_up(certificates):
            what = f"the CA of this grid, which all its computers trust, is gone: {certificates}"
            raise _lost(what, "bring it back from a backup", certificates, "have every computer join again")
        make_folder(certificates)
    folder, url = settings.data_dir, parse_url(settings.database)
    keys = (folder / "tokens" / name for name in ("session-key", "job-key"))
    if not (any(key.exists() for key in keys) or any(_FILES.fullmatch(name) for name in _names(folder / "files"))):
        return False
    file = Path(url.database or "")
    if is_sqlite(url) and not (file.exists() and file.stat().st_size):
        raise database_lost(f"{file} is {'empty' if file.exists() else 'missing'}")
    return True


async def refuse_losses(settings: MasterSettings, store: Store) -> None:
    """Warn of missing files before they are created again. Raises LooplineError if jobs would fail without one."""
    if not await store.jobs.any():
        return
    folder = settings.data_dir
    is_well = _has_files(settings) or _is_given_up(folder / "files")
    if not is_well and await store.files.name_some():
        what = f"the files of jobs are gone: there is nothing in {settings.files or folder / 'files'}"
        remedy = "copy them there" if settings.files else "mount that folder, or bring it back from a backup"
        raise _lost(what, remedy, folder / "files")
    key = folder / "tokens" / "job-key"
    if not read_key(key) and not _is_given_up(key) and (sealed := await store.jobs.with_text(SEALED)):
        jobs = ", ".join(map(str, sealed[:_JOBS_NAMED])) + (", ..." if len(sealed) > _JOBS_NAMED else "")
        what = f"{key} is gone, and with it the secrets of jobs that are not done ({jobs})"
        raise _lost(what, "bring it back from a backup", key)
    if not read_key(folder / "tokens" / "session-key"):
        log.warning("tokens/session-key was missing and is created again: all users have to sign in again")
    if not read_private(folder / "webhook-secret"):
        log.warning(
            "webhook-secret was missing and is created again: receivers of webhooks refuse them until they are given"
            " the secret that `loopline token webhook-secret` prints now"
        )


def _has_files(settings: MasterSettings) -> bool:
    return Bucket(settings.files).holds_some() if settings.files else bool(_names(settings.data_dir / "files"))


def _lost(what: str, remedy: str, place: Path, price: str = "have tasks that need it fail") -> LooplineError:
    hint = f"{remedy}; to continue without it, and {price}: touch {place}.is-lost"
    return LooplineError("data_lost", what, hint)


def _is_given_up(place: Path) -> bool:
    """True if a person has said that it is lost; that holds for one start."""
    try:
        place.with_name(f"{place.name}.is-lost").unlink()
    except FileNotFoundError:
        return False
    log.warning("%s is lost, and started again", place)
    return True


def _names(folder: Path) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return [each.name for each in folder.iterdir()]
    return []
