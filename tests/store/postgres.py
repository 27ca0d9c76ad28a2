"""A real PostgreSQL server that runs during the tests."""

from __future__ import annotations

import atexit
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

from loopline.local.local_grid import reserved

Had = TypeVar("Had")
OPTIONS = "-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off -c shared_buffers=16MB"


_PR_SET_PDEATHSIG = 1


class Missing(Exception):
    """The reason why no server is available here."""


class Server:
    """A server that a test can stop, pause and restart."""

    def __init__(self, folder: Path, command: list[str], whose: dict[str, Any], url: str) -> None:
        self.url = url
        self.process: Any = None  # the subprocess, once started
        self._folder, self._command, self._whose = folder, command, whose

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._whose
            )
        _wait_for(self.process, self._folder / "data" / "postmaster.pid", self._folder / "log")

    def listen_at(self, address: str, network: str) -> None:
        """Serve the computers of a network too, from the next start."""
        self._command += ["-c", f"listen_addresses=127.0.0.1,{address}"]
        with (self._folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {network} trust\n")

    @contextmanager
    def follower(self) -> Iterator[Server]:
        """Return a server that replicated this one until now: it stays at this state, and is not started yet."""
        with tempfile.TemporaryDirectory(prefix="loopline-postgres-") as name, held_port() as port:
            folder = Path(name)
            if self._whose:
                os.chown(folder, self._whose["user"], self._whose["group"])
            data = str(folder / "data")
            copy = str(Path(self._command[0]).resolve().with_name("pg_basebackup"))
            _run(
                copy,
                "-D",
                data,
                "-d",
                f"{self.url}/postgres",
                "--checkpoint=fast",
                "--write-recovery-conf",
                **self._whose,
            )
            command = [self._command[0], "-D", data, *OPTIONS.format(port=port, folder=folder).split()]
            made = Server(folder, command, self._whose, f"postgresql://loopline@127.0.0.1:{port}")
            try:
                yield made
            finally:
                if made.process:
                    made.end(signal.SIGQUIT)

    def end(self, signum: int = signal.SIGINT) -> None:
        self.process.send_signal(signum)
        self.process.wait(60)


@contextmanager
def or_skip(made: AbstractContextManager[Had]) -> Iterator[Had]:
    """Yield from this context; if it raises Missing, skip the test with the reason."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(made)
        except Missing as reason:
            pytest.skip(str(reason))
        yield found


@contextmanager
def restartable_postgres() -> Iterator[Server]:
    """Return a server that is not started yet. Raises Missing."""
    with _prepared() as (folder, server, whose, port):
        made = Server(folder, server, whose, f"postgresql://loopline@127.0.0.1:{port}")
        try:
            yield made
        finally:
            if made.process:
                made.end(signal.SIGQUIT)


@contextmanager
def running_postgres(*settings: str) -> Iterator[str]:
    """Yield the URL, without a database name, of a new server with these additional settings. Raises Missing."""
    with ExitStack() as stack:
        folder, server, whose, port = stack.enter_context(_prepared())
        log = stack.enter_context((folder / "log").open("wb"))
        command = [*server, *(word for setting in settings for word in ("-c", setting))]
        process = stack.enter_context(_serving(command, stdout=log, stderr=log, **whose))
        _wait_for(process, folder / "data" / "postmaster.pid", folder / "log")
        yield f"postgresql://loopline@127.0.0.1:{port}"


@contextmanager
def _prepared() -> Iterator[tuple[Path, list[str], dict[str, Any], int]]:
    bins = _binaries()
    owner = _another_user()
    folder = Path(tempfile.mkdtemp(prefix="loopline-postgres-"))
    try:
        whose = _given_to(owner, folder)
        data = str(folder / "data")
        _run("cp", "-R", str(_made_once(bins, owner)), data, **whose)
        with held_port() as port:
            server = [str(bins / "postgres"), "-D", data, *OPTIONS.format(port=port, folder=folder).split()]
            yield folder, server, whose, port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _made_once(bins: Path, owner: pwd.struct_passwd | None) -> Path:
    """Return an initialized data folder, created once per process."""
    folder = Path(tempfile.mkdtemp(prefix="loopline-postgres-"))
    atexit.register(_remove, folder, os.getpid())
    made = folder / "data"
    options = ["-U", "loopline", "-A", "trust", "-N", "-E", "UTF8", "--no-locale", "--wal-segsize=1"]
    _run(str(bins / "initdb"), "-D", str(made), *options, **_given_to(owner, folder))
    return made


def _remove(folder: Path, maker: int) -> None:
    if os.getpid() == maker:  # a fork must do this at its exit too
        shutil.rmtree(folder, ignore_errors=True)


def _given_to(owner: pwd.struct_passwd | None, folder: Path) -> dict[str, Any]:
    """Give the folder to the user of the server; return the arguments that start a process as that user."""
    if owner is None:
        return {}
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


@contextmanager
def _serving(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server that is shut down when this process ends, even if it is killed."""
    with subprocess.Popen(command, cwd="/", stdin=subprocess.DEVNULL, preexec_fn=_end_with_us, **options) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGQUIT)


def _end_with_us() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _wait_for(process: subprocess.Popen[bytes], state: Path, log: Path) -> None:
    """Wait for this state in the server's own file, which `pg_ctl -w` reads too."""
    until = time.monotonic() + 60
    while not state.exists() or state.read_text().split()[-1:] != ["ready"]:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)


def _binaries() -> Path:
    found = shutil.which("pg_ctl")
    candidates = [*Path("/usr/lib/postgresql").glob("*/bin"), *([Path(found).parent] if found else [])]
    usable = [folder for folder in candidates if (folder / "initdb").exists()]
    if not usable:
        raise Missing("PostgreSQL's initdb and pg_ctl are not installed (Debian: apt install postgresql)")
    return max(usable)


def _another_user() -> pwd.struct_passwd | None:
    """Return the user that runs PostgreSQL, which refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        raise Missing("PostgreSQL does not run as root, and there is no user postgres") from None


@contextmanager
def held_port() -> Iterator[int]:
    """Hold a port for a server, also before the server starts and while it restarts."""
    port = reserved()
    try:
        yield port.number
    finally:
        port.release()


def _run(*command: str, **whose: Any) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, cwd="/", timeout=60, stdin=subprocess.DEVNULL, **whose
    )
    assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
