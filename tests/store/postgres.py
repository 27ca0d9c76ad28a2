"""A real PostgreSQL, for as long as the tests run."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OPTIONS = "-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off -c shared_buffers=16MB"


class Missing(Exception):
    """Why there can be none here."""


@contextmanager
def running_postgres() -> Iterator[str]:
    """The URL of a fresh server, without the database's name. Missing where it cannot be had."""
    bins = _binaries()
    prefix, owner = _another_user()
    folder = Path(tempfile.mkdtemp(prefix="loopline-postgres-"))
    port = _free_port()
    try:
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = str(folder / "data")
        _run(*prefix, str(bins / "initdb"), "-D", data, "-U", "loopline", "-A", "trust", "-N", "-E", "UTF8")
        pg_ctl = [*prefix, str(bins / "pg_ctl"), "-D", data, "-w"]
        _run(*pg_ctl, "-l", str(folder / "log"), "-o", OPTIONS.format(port=port, folder=folder), "start")
        try:
            yield f"postgresql://loopline@127.0.0.1:{port}"
        finally:
            _run(*pg_ctl, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path:
    found = shutil.which("pg_ctl")
    candidates = [*Path("/usr/lib/postgresql").glob("*/bin"), *([Path(found).parent] if found else [])]
    usable = [folder for folder in candidates if (folder / "initdb").exists()]
    if not usable:
        raise Missing("PostgreSQL's initdb and pg_ctl are not installed (Debian: apt install postgresql)")
    return max(usable)


def _another_user() -> tuple[list[str], pwd.struct_passwd | None]:
    """PostgreSQL refuses to run as root: how to run it as somebody else then, and who that is."""
    if os.geteuid() != 0:
        return [], None
    if shutil.which("runuser") is None:
        raise Missing("PostgreSQL does not run as root, and there is no runuser to become somebody else")
    try:
        return ["runuser", "-u", "postgres", "--"], pwd.getpwnam("postgres")
    except KeyError:
        raise Missing("PostgreSQL does not run as root, and there is no user postgres") from None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
