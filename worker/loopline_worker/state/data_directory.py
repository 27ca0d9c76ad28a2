"""The agent's data directory, and the disk that it is on.

The directory is used by one agent at a time, keeps the worker's name, and is cleaned at each start. The disk may be a
reason to accept no more tasks, or to end one.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from loopline_shared.disk.durable_files import make_folder
from loopline_shared.errors import LooplineError
from loopline_worker.attempts import scratch
from loopline_worker.core.events import DiskObserved
from loopline_worker.supervisor import requests

log = logging.getLogger(__name__)

_PATIENCE_S = 5.0
_PROBE_BYTES = 65536


class DataDirectory:
    """Data directory, locked as long as the agent's process lives."""

    def __init__(self, folder: Path) -> None:
        """Make and lock the folder. Raises LooplineError if it is unusable or another agent uses it."""
        self.folder = folder.absolute()
        self.scratch = self.folder / "scratch"
        self.spool = self.folder / "spool"
        self.cache = self.folder / "cache"
        self.environments = self.folder / "environments"
        self.checkpoints = self.folder / "checkpoints"
        self.journal = self.folder / "ledger.jsonl"
        self.pause = self.folder / "pause.json"
        self.speed = self.folder / "speed.json"
        self.gpus = self.folder / "gpus.json"
        self.idle_power = self.folder / "idle-power.json"
        self.contribution = self.folder / "contribution.json"
        self.traffic = self.folder / "traffic.json"
        try:
            make_folder(self.folder)
            self.scratch.mkdir(exist_ok=True)
            self.spool.mkdir(exist_ok=True)
            self._lock = (self.folder / "lock").open("a+")
        except OSError as error:
            hint = "name a folder that this user may write to with --data-dir"
            raise LooplineError("data_dir", f"cannot use the data folder: {error}", hint) from None
        if not _lock_file(self._lock.fileno()):
            message = f"another agent uses the data folder {self.folder}"
            raise LooplineError("data_dir", message, "stop it, or give this one its own folder with --data-dir")

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def worker_name(self) -> str:
        """Return the worker's name, generated at the first start and kept."""
        file = self.folder / "name"
        kept = file.read_text("utf-8").strip() if file.exists() else ""
        if kept:
            return kept
        host = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname().partition(".")[0]).strip("-")
        name = f"{host[:80] or 'worker'}-{secrets.token_hex(2)}"
        file.write_text(f"{name}\n", "utf-8")
        return name

    def free_bytes(self) -> int:
        """Return the free space on its disk."""
        return shutil.disk_usage(self.folder).free

    def is_writable(self) -> bool:
        """True if a file can be written right now."""
        probe = self.folder / "probe"
        try:
            with probe.open("wb") as file:
                file.write(bytes(_PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
            probe.unlink()
        except OSError:
            return False
        return True

    def open_to_tasks(self) -> None:
        """Let tasks with users of their own through to their folders and environments, and list nothing besides."""
        open_ = (self.folder, self.scratch, self.environments)
        self.environments.mkdir(exist_ok=True)
        for folder in open_:
            folder.chmod(0o711)
        for folder in self.folder.parents:
            status = folder.stat()
            if status.st_uid == os.geteuid() and not status.st_mode & 0o001:
                folder.chmod(status.st_mode & 0o7777 | 0o001)
        for folder in self.folder.iterdir():
            if folder not in open_ and folder.is_dir():
                folder.chmod(0o700)

    def sweep(self) -> None:
        """Kill what an earlier agent left running, and remove its scratch folders."""
        if zygote := requests.inherited():
            self.open_to_tasks()
            zygote.hand_over(str(self.scratch))
        give_up = time.monotonic() + _PATIENCE_S
        while (left := self._leftovers()) and time.monotonic() < give_up:
            for process in left:
                log.warning("killing process %d, which an earlier agent left behind", process.pid)
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, timeout=1)
        for folder in self.scratch.iterdir():
            scratch.remove(folder)

    def _leftovers(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_leftover(process)]

    def _is_leftover(self, process: psutil.Process) -> bool:
        """True if the process's environment names a folder of ours as its own; a process hardly ever sheds that."""
        try:
            folder = process.environ().get(scratch.VARIABLE, "")
        except (psutil.Error, OSError):
            return False
        ours = (f"{self.scratch}{os.sep}", f"{self.environments}{os.sep}")
        return folder.startswith(ours) and process.pid != os.getpid()


def _lock_file(lock: int) -> bool:
    """Lock an open file for as long as it is open. Return False if another process holds the lock."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class Disk:
    """The disk that holds the data folder."""

    def __init__(self, data_directory: DataDirectory, reserve_bytes: int) -> None:
        self._data_directory = data_directory
        self._reserve_bytes = reserve_bytes

    def look(self, trouble: str, are_too_many_results: bool) -> DiskObserved:
        """Return how things are now. After a ``trouble``, files are tried again."""
        is_writable = bool(trouble) and self._data_directory.is_writable()
        free_bytes = self._data_directory.free_bytes()
        if free_bytes < self._reserve_bytes:
            obstacle = f"only {free_bytes:,} bytes are free in {self._data_directory.folder}"
            return DiskObserved(obstacle, self._shortage(), is_writable)
        obstacle = "too many results wait for the master" if are_too_many_results else ""
        return DiskObserved(obstacle, is_writable=is_writable)

    def _shortage(self) -> str:
        limit = f"less than {self._reserve_bytes:,} bytes are free on its disk"
        return f"{limit} (disk_reserve_bytes of this worker)"
