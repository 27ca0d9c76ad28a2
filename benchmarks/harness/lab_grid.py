"""A grid in a lab's network: a master, and a worker in each namespace; one worker may be faulty."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.harness import tables
from benchmarks.harness.lab import Lab, inside

ROOT = Path(__file__).parents[2]
PORT = 7461
WITHIN_S = 400.0
FAULTY = {"worker lies": "liar", "worker mute": "mute"}
"""Faults of a worker from its start, and their names in benchmarks/light/faulty_worker.py."""
FAULTS = ("worker killed", "worker stopped", "worker cut off", *FAULTY, "cable halved", "master killed")

Knows = Literal["assumed", "learnt", "measured", "written"]
KNOWS: tuple[Knows, ...] = ("assumed", "learnt", "measured", "written")
"""Learnt: from a file as large that was sent to all before."""


@dataclass(frozen=True, slots=True)
class Case:
    """A way to bring files. The fault comes when a worker in the middle, perhaps its victim, has half of its file.

    The master is killed once some worker has all of it: then the others can have it without the master.
    """

    name: str
    peers: bool = True
    knows: Knows = "assumed"
    fault: str = ""  # of FAULTS
    tls: bool = True
    blind: bool = False  # each fetches from a random holder, and tasks go to workers in turn


def make(file: Path, mib: int) -> str:
    """Write a file without two equal MiB; return its SHA-256."""
    block, digest = os.urandom(2**20), hashlib.sha256()
    with file.open("wb") as stream:
        for number in range(mib):
            part = hashlib.blake2b(number.to_bytes(4, "big")).digest() + block[64:]
            digest.update(part)
            stream.write(part)
    return digest.hexdigest()


class LabGrid:
    """A master and a worker in each namespace, with all their files in one folder."""

    def __init__(self, lab: Lab, folder: Path, case: Case) -> None:
        self.lab = lab
        self.folder = folder
        self.stamps = folder / "stamps"
        self.stamps.mkdir()
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self._case = case

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have all processes run while the context lasts."""
        serve = ["--host", "0.0.0.0", "--port", str(PORT), "--data-dir", str(self.folder / "master")]
        if self._case.knows == "written":
            (self.folder / "network.toml").write_text(self.lab.network_toml())
            serve += ["--network-file", str(self.folder / "network.toml")]
        serve += ["--peers", "on" if self._case.peers else "off", "--order", "none"]  # tasks wait for the last one
        tokens = self.folder / "master" / "tokens"
        if not self._case.tls:
            # these computers act as the proxy, so plain HTTP is allowed
            serve += ["--tls", "off", "--proxy", ",".join(map(self.lab.address, self.lab.names))]
        serves = ["benchmarks.light.blind_master"] if self._case.blind else ["loopline_master"]
        master = self.master = self._start(self.lab.master, *serves, *serve)
        try:
            while not (tokens / "worker").exists():
                assert master.poll() is None, (self.folder / f"{self.lab.master}.log").read_text()
                time.sleep(0.1)
            for name in self.lab.names:
                joins = ["--master", self._url, "--token-file", str(tokens / "worker")]
                own = ["--name", name, "--data-dir", str(self.folder / name), "--slots", "1", "--dedicated"]
                own += ["--sandbox", "off"]  # tasks write down when they have the file
                faulty = FAULTY.get(self._case.fault) if name == self.victim else None
                runs = ["benchmarks.light.faulty_worker", faulty] if faulty else ["loopline_worker"]
                self.agents[name] = self._start(name, *runs, *joins, *own)
            while not all("connected to" in (self.folder / f"{name}.log").read_text() for name in self.agents):
                time.sleep(0.1)
            yield
        finally:
            (self.stamps / "over").touch()
            for process in (*self.agents.values(), master):
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
            for process in (*self.agents.values(), master):
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()

    def befall(self, fault: str) -> None:
        """Have a fault happen."""
        match fault:
            case "worker killed":
                self.agents[self.victim].kill()
            case "worker stopped":
                self.agents[self.victim].send_signal(signal.SIGSTOP)
            case "worker cut off":
                self.lab.cut_off(self.victim)
            case "master killed":
                self.master.kill()
            case "cable halved":
                self.lab.change_between(self.lab.between / 2)

    @property
    def victim(self) -> str:
        """The worker in the middle of the first line."""
        return self.lab.names[self.lab.workers // 4]

    def replanned_s(self, since: float) -> float | None:
        """Return the time from ``since`` to the next plan, from the master's log."""
        log = sqlite3.connect(self.folder / "master" / "loopline.db")
        with closing(log):
            batches = (json.loads(text) for (text,) in log.execute("SELECT batch FROM event_log ORDER BY seq"))
            plans = [
                batch["now"] for batch in batches for event in batch["events"] if event["kind"] == "transfers_planned"
            ]
        return next((round(at - since, 2) for at in plans if at > since), None)

    def submit(self, files: list[Path]) -> float:
        """Submit a job for each file, with a task for each worker together; return when."""
        (begin,) = self.run_user("benchmarks.light.lab_user", self.stamps, self.lab.workers, *files)
        return float(begin)

    def learn(self, file: Path) -> None:
        """Send a file to all workers, and end its tasks."""
        self.submit([file])
        while len(self.arrivals()) < self.lab.workers:
            time.sleep(0.1)
        for stamp in self.stamps.iterdir():
            stamp.unlink()
        time.sleep(2.0)  # tasks look for their stamps

    def run_user(self, module: str, *words: object) -> list[str]:
        """Run a user's program beside the master, with its address and token; return its output."""
        command = [sys.executable, "-m", module, self._url, self._token_file, *words]
        place = [*inside(self.lab.master), *map(str, command)]
        return subprocess.check_output(
            place, cwd=ROOT, env=self._environment(), timeout=WITHIN_S, text=True
        ).splitlines()

    def measure_network(self) -> None:
        """Have the idle grid measured, once all workers are there."""
        reach = ["--master", self._url]
        command = [*inside(self.lab.master), sys.executable, "-m", "loopline.cli", "network"]
        deadline = time.time() + WITHIN_S
        while self._ask(*command, *reach, "--json").count('"up"') < self.lab.workers + 2 and time.time() < deadline:
            time.sleep(0.5)
        time.sleep(2.0)  # until ports are open everywhere
        tables.progress(self._ask(*command, "measure", *reach))

    @property
    def _url(self) -> str:
        return f"http{'s' * self._case.tls}://{self.lab.address(self.lab.master)}:{PORT}"

    @property
    def _token_file(self) -> Path:
        return self.folder / "master" / "tokens" / "admin"

    def _ask(self, *command: str) -> str:
        known = {"LOOPLINE_TOKEN_FILE": str(self._token_file)}
        ran = subprocess.run(
            command, cwd=ROOT, env=self._environment() | known, check=False, capture_output=True, text=True
        )
        return ran.stdout + ran.stderr

    def arrivals(self) -> list[tuple[float, str]]:
        """Return when each task had the file, and the SHA-256 that it found."""
        done = [path for path in self.stamps.iterdir() if path.name.isdigit()]
        found = [path.read_text().split() for path in done]
        return [(float(words[0]), words[1]) for words in found]

    def lies(self) -> int:
        """Return the number of wrong pieces reported to the master."""
        return (self.folder / f"{self.lab.master}.log").read_text().count(" sent wrong bytes of ")

    def is_quarantined(self) -> bool:
        """True if the victim is in quarantine."""
        with closing(sqlite3.connect(self.folder / "master" / "loopline.db")) as rows:
            (until,) = rows.execute("SELECT quarantined_until FROM workers WHERE name = ?", [self.victim]).fetchone()
        return until is not None

    def is_time(self, fault: str, size_bytes: int) -> bool:
        """True if the fault is to happen now."""
        if fault in FAULTY:
            return False
        if fault == "master killed":
            return bool(self.arrivals())
        parts = (self.folder / self.victim / "cache" / "incoming").glob("*")
        return any(part.stat().st_size >= size_bytes / 2 for part in parts)

    def _start(self, name: str, module: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [*inside(name), sys.executable, "-m", module, *words]
            return subprocess.Popen(
                command, cwd=self.folder, env=self._environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOOPLINE")}
        return kept | {"PYTHONPATH": str(ROOT), "HOME": str(self.folder), "LOOPLINE_CONFIG": os.devnull}
