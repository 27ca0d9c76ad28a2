"""One file to every worker of a lab with two switches and a narrow cable between: ``python -m
benchmarks.rates.transfers``.

How long until the last worker's task has the file, held against size / narrowest link; and how often the file has
left the master and crossed the cable. From the master alone, and between workers; with ``--kill``, also while a
worker in the middle is killed halfway. The network is made of namespaces (benchmarks/harness/lab.py), which needs
root.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.harness import tables
from benchmarks.harness.lab import Lab, inside, obstacle

ROOT = Path(__file__).parents[2]
PORT = 7461
WITHIN_S = 400.0


@dataclass(frozen=True, slots=True)
class Case:
    """A way to bring the file. ``kills``: a worker in the middle of the lab dies halfway."""

    name: str
    peers: bool
    kills: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """One run; times in seconds, copies in sizes of the file."""

    way: str
    last_s: float
    first_s: float
    ideal_s: float
    ratio: float
    master: float
    a_to_b: float
    b_to_a: float
    right: int
    expected: int


def make(file: Path, mib: int) -> str:
    """Write a file of which no two MiB are alike; return its SHA-256."""
    block, digest = os.urandom(2**20), hashlib.sha256()
    with file.open("wb") as stream:
        for number in range(mib):
            part = hashlib.blake2b(number.to_bytes(4, "big")).digest() + block[64:]
            digest.update(part)
            stream.write(part)
    return digest.hexdigest()


class LabGrid:
    """A master and a worker in each namespace, with all their files in one folder."""

    def __init__(self, lab: Lab, folder: Path, peers: bool) -> None:
        self.lab = lab
        self.folder = folder
        self.stamps = folder / "stamps"
        self.stamps.mkdir()
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self._peers = peers

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have all processes run while the context lasts."""
        address = self.lab.address(self.lab.master)
        serve = ["--host", "0.0.0.0", "--port", str(PORT), "--data-dir", str(self.folder / "master")]
        master = self._start(self.lab.master, "loopline_master", *serve, "--peers", "on" if self._peers else "off")
        tokens = self.folder / "master" / "tokens"
        try:
            while not (tokens / "worker").exists():
                assert master.poll() is None, (self.folder / f"{self.lab.master}.log").read_text()
                time.sleep(0.1)
            for name in self.lab.names:
                joins = ["--master", f"http://{address}:{PORT}", "--token-file", str(tokens / "worker")]
                own = ["--name", name, "--data-dir", str(self.folder / name), "--slots", "1", "--dedicated", "--sandbox", "off"]
                self.agents[name] = self._start(name, "loopline_worker", *joins, *own)
            yield
        finally:
            (self.stamps / "over").touch()
            for process in (*self.agents.values(), master):
                process.send_signal(signal.SIGTERM)
            for process in (*self.agents.values(), master):
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()

    def submit(self, file: Path) -> float:
        """Submit a task for each worker; return when."""
        token = (self.folder / "master" / "tokens" / "admin").read_text().strip()
        url = f"http://{self.lab.address(self.lab.master)}:{PORT}"
        words = ["benchmarks.light.lab_user", url, token, file, self.stamps, self.lab.workers]
        command = [*inside(self.lab.master), sys.executable, "-m", *map(str, words)]
        return float(subprocess.check_output(command, cwd=ROOT, env=self._environment(), timeout=WITHIN_S))

    def arrivals(self) -> list[tuple[float, str]]:
        """Return when each task had the file, and the SHA-256 that it found."""
        done = [path for path in self.stamps.iterdir() if path.name.isdigit()]
        found = [path.read_text().split() for path in done]
        return [(float(words[0]), words[1]) for words in found]

    def has_half(self, name: str, size_bytes: int) -> bool:
        """True if a worker has half of the file."""
        parts = (self.folder / name / "cache" / "incoming").glob("*")
        return any(part.stat().st_size >= size_bytes / 2 for part in parts)

    def _start(self, name: str, module: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [*inside(name), sys.executable, "-m", module, *words]
            return subprocess.Popen(
                command, cwd=self.folder, env=self._environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOOPLINE")}
        return kept | {"HOME": str(self.folder), "LOOPLINE_CONFIG": os.devnull}


def measure(case: Case, lab: Lab, mib: int, keep: Path | None) -> Measured:
    """Run a grid once."""
    folder = Path(tempfile.mkdtemp(prefix="lab"))
    try:
        file = folder / "large.bin"
        sha256, size_bytes = make(file, mib), mib * 2**20
        grid = LabGrid(lab, folder, case.peers)
        expected = lab.workers - case.kills
        begin = 0.0
        with lab.built(), grid.running():
            carried = lab.sent_bytes()
            begin = grid.submit(file)
            to_kill = lab.names[lab.workers // 4] if case.kills else ""
            while len(grid.arrivals()) < expected and time.time() < begin + WITHIN_S:
                time.sleep(0.05)
                if to_kill and grid.has_half(to_kill, size_bytes):
                    grid.agents[to_kill].kill()
                    to_kill = ""
            sent = {name: (count - carried[name]) / size_bytes for name, count in lab.sent_bytes().items()}
            arrived = grid.arrivals()
    finally:
        if keep:
            for log in folder.glob("*.log"):
                shutil.copy(log, keep / f"{case.name.replace(' ', '-')}-{log.name.removeprefix(lab.prefix)}")
        shutil.rmtree(folder, ignore_errors=True)
    times = sorted(at - begin for at, _ in arrived) or [float("inf")]
    ideal_s = size_bytes * 8 / 1e6 / min(lab.edge, lab.between)
    right = sum(found == sha256 for _, found in arrived)
    return Measured(
        case.name, round(times[-1], 2), round(times[0], 2), round(ideal_s, 2), round(times[-1] / ideal_s, 2),
        master=round(sent["master"], 2), a_to_b=round(sent["A->B"], 2), b_to_a=round(sent["B->A"], 2),
        right=right, expected=expected,
    )  # fmt: skip


def main() -> None:
    asking = tables.parser(__doc__)
    asking.add_argument("--workers", type=int, default=8)
    asking.add_argument("--mib", type=int, default=16)
    asking.add_argument("--edge", type=float, default=100.0, help="Mbit/s of each host's link")
    asking.add_argument("--between", type=float, default=25.0, help="Mbit/s between the switches")
    asking.add_argument("--kill", action="store_true", help="also with a worker killed halfway")
    asking.add_argument("--without-master-alone", action="store_true", help="leave out the slow way")
    asking.add_argument("--logs", type=Path, help="a folder for the logs")
    options = asking.parse_args()
    if options.full:
        options.workers, options.mib, options.kill = 16, 64, True
    if reason := obstacle():
        print(f"Not run: {reason}.")
        return
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
    cases = [] if options.without_master_alone else [Case("from the master alone", peers=False)]
    cases.append(Case("between workers", peers=True))
    cases += [Case("one killed halfway", peers=True, kills=True)] if options.kill else []
    found = []
    for case in cases:
        tables.progress(case.name)
        lab = Lab(options.workers, options.edge, options.between)
        found.append(measure(case, lab, options.mib, options.logs))
    head = ["way", "last s", "first s", "ideal s", "ratio", "from master", "A->B", "B->A", "right"]
    rows = [
        [one.way, one.last_s, one.first_s, one.ideal_s, one.ratio, one.master, one.a_to_b, one.b_to_a,
         f"{one.right} of {one.expected}"]
        for one in found
    ]  # fmt: skip
    title = (
        f"{options.mib} MiB to {options.workers} workers, {options.edge:g} Mbit/s at the edge, "
        f"{options.between:g} between the switches; copies of the file\n\n"
    )
    tables.answer([asdict(one) for one in found], title + tables.table(head, rows), options.json)


if __name__ == "__main__":
    main()
