"""Other ways to bring a file to every host of a lab: libtorrent, udpcast, rsync to one after the other.

Each returns when every host had it, in seconds since 1970, or raises LookupError with the reason why it cannot be
tried here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness.grid import YARDSTICKS
from benchmarks.harness.lab import Lab, inside

SYSTEM_PYTHON = "/usr/bin/python3"
WITHIN_S = 400.0
_UDP_SHARE = 0.92
"""Share of the narrowest link for udpcast, which needs the rest for headers and retransmissions."""


def libtorrent(lab: Lab, file: Path) -> list[float]:
    """Bring the file by BitTorrent; the seed is the master."""
    if subprocess.run([SYSTEM_PYTHON, "-c", "import libtorrent"], check=False, capture_output=True).returncode:
        raise LookupError("python3-libtorrent is not installed")
    torrent = file.parent / "large.torrent"
    names = [lab.master, *lab.names]
    addresses = [lab.address(name) for name in names]
    commands = []
    for name in names:
        folder = file.parent if name == lab.master else file.parent / f"torrent-{name}"
        folder.mkdir(exist_ok=True)
        words = [lab.address(name), str(torrent), str(folder), *addresses]
        commands.append([*inside(name), SYSTEM_PYTHON, str(YARDSTICKS / "with_libtorrent.py"), *words])
    with _started(commands[:1]) as (seed,):
        assert seed.stdout
        seed.stdout.readline()
        begin = time.time()
        with _started(commands[1:]) as others:
            return [begin, *(float(other.stdout.readline()) for other in others if other.stdout)]


def udpcast(lab: Lab, file: Path) -> list[float]:
    """Bring the file by multicast, at nearly the rate of the narrowest link."""
    if not shutil.which("udp-sender"):
        raise LookupError("udpcast is not installed")
    for name in (lab.master, *lab.names):
        subprocess.run([*inside(name), "ip", "route", "add", "224.0.0.0/4", "dev", "eth0"], check=True)
    rate = f"{int(min(lab.edge, lab.between) * _UDP_SHARE * 1000)}k"
    receive = ["udp-receiver", "--nokbd", "--interface", "eth0", "--file"]
    send = [
        "udp-sender",
        "--nokbd",
        "--interface",
        "eth0",
        "--min-receivers",
        str(lab.workers),
        "--max-bitrate",
        rate,
    ]
    commands = [
        [
            *inside(name),
            "sh",
            "-c",
            '"$@" > /dev/null 2>&1; date +%s.%N',
            "sh",
            *receive,
            str(file.parent / f"udp-{name}"),
        ]
        for name in lab.names
    ]
    with _started(commands) as receivers:
        begin = time.time()
        with _started([[*inside(lab.master), *send, "--file", str(file)]]):
            return [begin, *(float(one.stdout.readline()) for one in receivers if one.stdout)]


def rsync(lab: Lab, file: Path) -> list[float]:
    """Bring the file to one host after the other."""
    if not shutil.which("rsync"):
        raise LookupError("rsync is not installed")
    settings = file.parent / "rsyncd.conf"
    settings.write_text(f"use chroot = no\n[files]\npath = {file.parent}\nread only = yes\nuid = root\ngid = root\n")
    daemon = ["rsync", "--daemon", "--no-detach", "--port", "8730", f"--config={settings}"]
    source = f"rsync://{lab.address(lab.master)}:8730/files/{file.name}"
    with _started([[*inside(lab.master), *daemon]]):
        time.sleep(1.0)
        found = [time.time()]
        for name in lab.names:
            copy = [*inside(name), "rsync", "--whole-file", source, str(file.parent / f"rsync-{name}")]
            subprocess.run(copy, check=True, capture_output=True)
            found.append(time.time())
        return found


WAYS = {"libtorrent": libtorrent, "udpcast": udpcast, "rsync, one by one": rsync}


@contextmanager
def _started(commands: list[list[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr, stdin=subprocess.DEVNULL, text=True)
        for command in commands
    ]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()
