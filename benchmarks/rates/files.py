"""Speed of a file's transfer from the master to four workers: ``python -m benchmarks.rates.files [--size MB]
[--tls] [--json]``.

A real master serves the file, and four processes fetch it at once, each with the worker's own cache: written to disk,
checked, under its name. The yardstick, in turn in the same run: a loop of sendfile to four processes that write what
they receive and do nothing else. Best of several rounds each; rates are bytes to all four together.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.master.swarm import ROOT, cpu_s, master

EVERY_S = 0.1  # interval of another client's requests
FETCHING = [sys.executable, "-m", "benchmarks.light.fetching"]


@dataclass(frozen=True)
class Figures:
    mb: int
    workers: int
    master_mb_s: float
    sendfile_mb_s: float
    ratio: float
    one_after_another_mb_s: float  # to one worker alone
    worker_cpu_s_gb: float
    plain_cpu_s_gb: float
    master_cpu_s_gb: float  # of the master, for each GB sent
    slowest_answer_ms: float  # of the master to the other client, during the transfer


@dataclass(frozen=True, order=True)
class Took:
    seconds: float
    cpu_s: float  # of the receivers


def fetch(commands: list[list[str]], watch: Callable[[], None] = lambda: None) -> Took:
    """Return the time that all fetches took together."""
    processes = [subprocess.Popen(one, cwd=ROOT, text=True, stdin=-1, stdout=-1) for one in commands]
    for process in processes:
        assert process.stdout
        process.stdout.readline()
    begin = time.perf_counter()
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    while any(process.poll() is None for process in processes):
        watch()
        time.sleep(0.001)
    seconds = time.perf_counter() - begin
    assert all(process.returncode == 0 for process in processes)
    return Took(seconds, sum(float(process.communicate()[0]) for process in processes))


def make(file: Path, mb: int) -> str:
    digest = hashlib.sha256()
    with file.open("wb") as stream:
        for _ in range(mb):
            piece = os.urandom(10**6)
            digest.update(piece)
            stream.write(piece)
    return digest.hexdigest()


def put(url: str, sha256: str, file: Path, trust: ssl.SSLContext | None) -> None:
    with file.open("rb") as stream:
        request = urllib.request.Request(f"{url}/api/v1/files/{sha256}", stream, method="PUT")
        request.add_header("Content-Length", str(file.stat().st_size))
        urllib.request.urlopen(request, context=trust).read()


class Neighbour:
    """Asks the master something small, again and again."""

    def __init__(self, url: str, trust: ssl.SSLContext | None) -> None:
        self._url, self._trust = f"{url}/healthz", trust
        self.slowest_s = self._asked_at = 0.0

    def __call__(self) -> None:
        begin = time.perf_counter()
        if begin - self._asked_at < EVERY_S:
            return
        self._asked_at = begin
        urllib.request.urlopen(self._url, context=self._trust).read()
        self.slowest_s = max(self.slowest_s, time.perf_counter() - begin)


def measure(mb: int, workers: int, rounds: int, *, tls: bool = False) -> Figures:
    flags = ["--tls", "on"] if tls else []
    with tempfile.TemporaryDirectory() as name, master(Path(name), *flags) as (process, url):
        folder, file = Path(name), Path(name) / "file"
        ca = [str(next((folder / "master").rglob("ca.pem")))] if tls else []
        trust = ssl.create_default_context(cafile=ca[0]) if tls else None
        sha256, target = make(file, mb), Path(name) / "to"
        put(url, sha256, file, trust)
        plain = subprocess.Popen([*FETCHING, "sendfile", str(file)], cwd=ROOT, text=True, stdout=-1)
        assert plain.stdout
        port, neighbour = plain.stdout.readline().strip(), Neighbour(url, trust)

        def ours(count: int) -> Took:
            commands = [[*FETCHING, "worker", url, sha256, str(target / str(number)), *ca] for number in range(count)]
            return _cleared(target, lambda: fetch(commands, neighbour))

        def theirs() -> Took:
            commands = [[*FETCHING, "plain", port, str(target / str(number))] for number in range(workers)]
            return _cleared(target, lambda: fetch(commands))

        ways: list[Callable[[], Took]] = [theirs, lambda: ours(workers)]
        try:
            began_s, took = cpu_s(process), []
            for number in range(rounds):  # in one order, then in the other: it matters who was there before
                turn = slice(None, None, -1 if number % 2 else 1)
                took.append([way() for way in ways[turn]][turn])
            spent_s = cpu_s(process) - began_s
            alone = min(ours(1) for _ in range(rounds))
        finally:
            plain.kill()
            plain.communicate()
            shutil.rmtree(folder / "to", ignore_errors=True)
    plain, checked = (min(column) for column in zip(*took, strict=True))
    return Figures(
        mb,
        workers,
        round(mb * workers / checked.seconds),
        round(mb * workers / plain.seconds),
        round(plain.seconds / checked.seconds, 2),
        round(mb / alone.seconds),
        round(checked.cpu_s / (mb * workers / 1000), 2),
        round(plain.cpu_s / (mb * workers / 1000), 2),
        round(spent_s / (rounds * mb * workers / 1000), 3),
        round(neighbour.slowest_s * 1000, 1),
    )


def _cleared(target: Path, act: Callable[[], Took]) -> Took:
    shutil.rmtree(target, ignore_errors=True)
    os.sync()
    return act()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--size", type=int, default=256, metavar="MB")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tls", action="store_true", help="the master encrypts; sendfile does not")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    figures = measure(chosen.size, chosen.workers, chosen.rounds, tls=chosen.tls)
    if chosen.json:
        print(json.dumps(asdict(figures), indent=2))
        return
    print(f"{figures.mb} MB to {figures.workers} workers at once, best of {chosen.rounds}:")
    print(f"  a loop of sendfile         {figures.sendfile_mb_s:>8,.0f} MB/s, not checked")
    print(f"  the master to its workers  {figures.master_mb_s:>8,.0f} MB/s, checked: {figures.ratio:.2f} of that")
    print(f"  ... to one worker alone    {figures.one_after_another_mb_s:>8,.0f} MB/s")
    print(
        f"  processor of who receives: {figures.worker_cpu_s_gb:.2f} s a GB, {figures.plain_cpu_s_gb:.2f} unchecked"
    )
    print(f"  the master's processor: {figures.master_cpu_s_gb:.2f} s a GB sent; meanwhile it answered others")
    print(f"  within {figures.slowest_answer_ms:.0f} ms at worst")


if __name__ == "__main__":
    main()
