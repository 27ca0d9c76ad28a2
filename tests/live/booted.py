"""A computer booted by systemd: a systemd-nspawn container with this computer's own system in an overlay.

Files written in it are deleted with it. Its only network is loopback; tests install Loopline as an administrator.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loopline_worker.supervisor import processes

PYTHON = "/usr/bin/python3"
HOME = "/opt/loopline"
_INIT = Path("/lib/systemd/systemd")
_NEEDED = ("systemd-nspawn", "nsenter", "mount", "runuser")
_SOURCES = Path(__file__).parents[2]
_PACKAGES = [*_SOURCES.glob("*/loopline_*/__init__.py"), _SOURCES / "client" / "loopline" / "__init__.py"]
_UV = Path(sys.prefix, "bin", "uv")
_LIBRARIES = Path(sys.prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
_PREPARES = f"""
{PYTHON} -m venv --without-pip {HOME}
site=$(echo {HOME}/lib/python3*/site-packages)
echo {HOME}/libraries > $site/libraries.pth
cp -r {HOME}/sources/* $site/
echo '#!{HOME}/bin/python3 -P' > {HOME}/bin/loopline
echo 'import sys; from loopline.cli.__main__ import main; sys.exit(main())' >> {HOME}/bin/loopline
chmod 755 {HOME}/bin/loopline
ln -s {HOME}/bin/loopline /usr/bin/loopline
ln -s {HOME}/uv {HOME}/bin/uv
"""


def missing() -> str:
    """Return the reason why this computer cannot boot such a container; empty if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root of Linux boots a container"
    if lacking := [name for name in _NEEDED if not shutil.which(name)]:
        return f"{', '.join(lacking)}: not installed"
    if not _INIT.exists() or not Path(PYTHON).exists():
        return "there is no systemd, or no Python of the system"
    asked = subprocess.run(
        [PYTHON, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, check=False
    )
    return "" if asked.stdout.split() == [b"%d" % part for part in sys.version_info[:2]] else "another Python"


class Computer:
    """The container, identified by the process id of its init."""

    def __init__(self, init: int) -> None:
        self._init = init

    def run(self, command: str, user: str = "root", within_s: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a shell command in the container as a logged-in user."""
        words = ["nsenter", "--target", str(self._init), "--all", "--"]
        words += [] if user == "root" else ["runuser", "-l", user, "-c"]
        words += [command] if user != "root" else ["/bin/sh", "-c", command]
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        return subprocess.run(
            words, capture_output=True, text=True, timeout=within_s, check=False, env=environment, cwd="/"
        )

    def says(self, command: str, user: str = "root") -> str:
        """Return the output of a command; raises AssertionError if the command fails."""
        done = self.run(command, user)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def until(self, command: str, user: str = "root", within_s: float = 90) -> str:
        """Wait until a command succeeds; return its output."""
        give_up = time.monotonic() + within_s
        while (done := self.run(command, user)).returncode:
            assert time.monotonic() < give_up, f"{command}: {done.stdout}{done.stderr}"
            time.sleep(0.1)  # polls
        return done.stdout.strip()


@contextmanager
def booted() -> Iterator[Computer]:
    """Boot a container, and stop it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="loopline-booted-", dir="/var/tmp"))
    root = folder / "root"
    root.mkdir()
    sources = folder / "sources"
    for package in _PACKAGES:
        shutil.copytree(package.parent, sources / package.parent.name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["mount", "--bind", "/", str(root)], check=True)
    command = [
        *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--volatile=overlay"),
        *(f"--machine=loopline-{os.getpid()}", f"--directory={root}", "--console=pipe", "--link-journal=no"),
        f"--bind-ro={sources}:{HOME}/sources",
        f"--bind-ro={_LIBRARIES}:{HOME}/libraries",
        f"--bind-ro={_UV}:{HOME}/uv",
        *("--boot", "systemd.unit=multi-user.target", "systemd.mask=postgresql.service"),
    ]
    with (folder / "console").open("wb") as console:
        nspawn = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
        )
    try:
        yield _ready(nspawn, folder)
    finally:
        for init in processes.children(nspawn.pid):
            subprocess.run(["kill", "-9", str(init)], check=False)
        nspawn.wait(60)
        subprocess.run(["umount", str(root)], check=True)
        shutil.rmtree(sources)
        (folder / "console").unlink()
        root.rmdir()
        folder.rmdir()


def _up(nspawn: int) -> Computer | None:
    """Return the computer once its systemd has finished booting; until then its init process changes."""
    for init in processes.children(nspawn):
        computer = Computer(init)
        if computer.run("systemctl is-system-running").stdout.strip() in ("running", "degraded"):
            return computer
    return None


def _ready(nspawn: subprocess.Popen[bytes], folder: Path) -> Computer:
    give_up = time.monotonic() + 60
    while not (computer := _up(nspawn.pid)):
        has_time = nspawn.poll() is None and time.monotonic() < give_up
        assert has_time, (folder / "console").read_text()
        time.sleep(0.05)  # polls
    computer.says(_PREPARES)
    return computer
