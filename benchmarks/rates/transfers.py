"""One file to every worker of a lab with two switches and a narrow cable between: ``python -m
benchmarks.rates.transfers``.

How long until the last worker's task has the file, held against size / narrowest link; and how often the file has
left the master and crossed the cable. From the master alone; between workers as the network is assumed, as
`loopline network measure` finds it, and as written down. With ``--faults``, also while a worker in the middle is
killed or stopped halfway, the cable is halved, or the master is killed once some worker has all; then it is told how
long the next plan took. With ``--others``, libtorrent, udpcast and rsync, without Loopline. With ``--mixed``,
neighbours in name are at different switches. With ``--files 4``, as many jobs at once, each with a file of its own
for its share of the workers: then the time is the makespan. The network is made of namespaces
(benchmarks/harness/lab.py), which needs root.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from benchmarks.harness import tables
from benchmarks.harness.lab import Lab, inside, obstacle
from benchmarks.harness.lab_copies import WAYS

ROOT = Path(__file__).parents[2]
PORT = 7461
WITHIN_S = 400.0
FAULTS = ("worker killed", "worker stopped", "cable halved", "master killed")
KNOWS: tuple[Literal["assumed", "measured", "written"], ...] = ("assumed", "measured", "written")


@dataclass(frozen=True, slots=True)
class Case:
    """A way to bring the file. The fault comes when a worker in the middle, perhaps its victim, has half of it.

    The master is killed once some worker has all of it: then the others can have it without the master.
    """

    name: str
    peers: bool = True
    knows: Literal["assumed", "measured", "written"] = "assumed"
    fault: str = ""  # of FAULTS
    tls: bool = True


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
    replanned_s: float | None = None  # from the fault to the next plan


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
            tokens.mkdir(parents=True)  # as a master of the release before has left it, which goes on in plain HTTP
        master = self.master = self._start(self.lab.master, "loopline_master", *serve)
        try:
            while not (tokens / "worker").exists():
                assert master.poll() is None, (self.folder / f"{self.lab.master}.log").read_text()
                time.sleep(0.1)
            for name in self.lab.names:
                joins = ["--master", self._url, "--token-file", str(tokens / "worker")]
                own = ["--name", name, "--data-dir", str(self.folder / name), "--slots", "1", "--dedicated"]
                own += ["--sandbox", "off"]  # tasks write down when they have the file
                self.agents[name] = self._start(name, "loopline_worker", *joins, *own)
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
            case "master killed":
                self.master.kill()
            case "cable halved":
                self.lab.change_between(self.lab.between / 2)

    @property
    def victim(self) -> str:
        """The worker in the middle of the first line."""
        return self.lab.names[self.lab.workers // 4]

    def replanned_s(self, since: float) -> float | None:
        """Return how long after a time the next plan was told, as the master's log has it."""
        log = sqlite3.connect(self.folder / "master" / "loopline.db")
        with closing(log):
            batches = (json.loads(text) for (text,) in log.execute("SELECT batch FROM event_log ORDER BY seq"))
            plans = [
                batch["now"] for batch in batches for event in batch["events"] if event["kind"] == "transfers_planned"
            ]
        return next((round(at - since, 2) for at in plans if at > since), None)

    def submit(self, files: list[Path]) -> float:
        """Submit a job for each file, with a task for each worker together; return when."""
        words = ["benchmarks.light.lab_user", self._url, self._token_file, self.stamps, self.lab.workers, *files]
        command = [*inside(self.lab.master), sys.executable, "-m", *map(str, words)]
        return float(subprocess.check_output(command, cwd=ROOT, env=self._environment(), timeout=WITHIN_S))

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

    def is_time(self, fault: str, size_bytes: int) -> bool:
        """True if the fault is to happen now."""
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
        return kept | {"HOME": str(self.folder), "LOOPLINE_CONFIG": os.devnull}


def measure(case: Case, lab: Lab, mib: int, keep: Path | None, count: int = 1) -> Measured:
    """Run a grid once, with so many files."""
    folder = Path(tempfile.mkdtemp(prefix="lab"))
    try:
        files = [folder / f"large-{number}.bin" for number in range(count)]
        made, size_bytes = {make(file, mib) for file in files}, mib * 2**20
        grid = LabGrid(lab, folder, case)
        expected = lab.workers - case.fault.startswith("worker")
        begin = fault_at = 0.0
        with lab.built(), grid.running():
            if case.knows == "measured":
                grid.measure_network()
            carried = lab.sent_bytes()
            begin = grid.submit(files)
            while len(grid.arrivals()) < expected and time.time() < begin + WITHIN_S:
                time.sleep(0.05)
                if case.fault and not fault_at and grid.is_time(case.fault, size_bytes):
                    fault_at = time.time()
                    grid.befall(case.fault)
            sent = {name: (at - carried[name]) / size_bytes / count for name, at in lab.sent_bytes().items()}
            arrived = grid.arrivals()
        replanned_s = grid.replanned_s(fault_at) if fault_at and case.fault != "master killed" else None
    finally:
        if keep:
            for log in folder.glob("*.log"):
                shutil.copy(log, keep / f"{case.name.replace(' ', '-')}-{log.name.removeprefix(lab.prefix)}")
        shutil.rmtree(folder, ignore_errors=True)
    right = sum(sha256 in made for _, sha256 in arrived)
    found = _measured(case.name, lab, count * size_bytes, [at - begin for at, _ in arrived], sent, (right, expected))
    return replace(found, replanned_s=replanned_s)


def compare(name: str, lab: Lab, mib: int) -> Measured:
    """Bring the file once by something else."""
    folder = Path(tempfile.mkdtemp(prefix="lab"))
    try:
        file = folder / "large.bin"
        sha256, size_bytes = make(file, mib), mib * 2**20
        with lab.built():
            carried = lab.sent_bytes()
            begin, *at = WAYS[name](lab, file)
            sent = {place: (count - carried[place]) / size_bytes for place, count in lab.sent_bytes().items()}
        copies = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size == size_bytes]
        right = sum(hashlib.sha256(path.read_bytes()).hexdigest() == sha256 for path in copies if path != file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _measured(name, lab, size_bytes, [one - begin for one in at], sent, (right, lab.workers))


def _measured(
    way: str, lab: Lab, size_bytes: int, times: list[float], sent: dict[str, float], right: tuple[int, int]
) -> Measured:
    times = sorted(times) or [float("inf")]
    ideal_s = size_bytes * 8 / 1e6 / min(lab.edge, lab.between)
    return Measured(
        way, round(times[-1], 2), round(times[0], 2), round(ideal_s, 2), round(times[-1] / ideal_s, 2),
        master=round(sent["master"], 2), a_to_b=round(sent["A->B"], 2), b_to_a=round(sent["B->A"], 2),
        right=right[0], expected=right[1],
    )  # fmt: skip


def main() -> None:
    asking = tables.parser(__doc__)
    asking.add_argument("--workers", type=int, default=8)
    asking.add_argument("--mib", type=int, default=16)
    asking.add_argument("--files", type=int, default=1, help="jobs at once, each with a file of its own")
    asking.add_argument("--edge", type=float, default=100.0, help="Mbit/s of each host's link")
    asking.add_argument("--between", type=float, default=25.0, help="Mbit/s between the switches")
    asking.add_argument("--faults", action="store_true", help="also with a worker, master killed; the cable halved")
    asking.add_argument("--fault", action="append", help="only with this one, such as 'master killed'")
    asking.add_argument("--no-tls", action="store_true", help="in the clear, as a grid of 0.1 goes on")
    asking.add_argument("--mixed", action="store_true", help="neighbours in name are at different switches")
    asking.add_argument("--others", action="store_true", help="also libtorrent, udpcast and rsync")
    asking.add_argument("--knows", action="append", help="assumed, measured or written; default: all three")
    asking.add_argument("--without-master-alone", action="store_true", help="leave out the slow way")
    asking.add_argument("--logs", type=Path, help="a folder for the logs")
    options = asking.parse_args()
    if options.full:
        options.workers, options.mib, options.faults, options.others = 16, 64, True, True
    if reason := obstacle():
        print(f"Not run: {reason}.")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped: the lab is taken down"))
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
    cases = [] if options.without_master_alone else [Case("from the master alone", peers=False)]
    cases += [Case(f"between workers, {knows}", knows=knows) for knows in options.knows or KNOWS]
    for fault in options.fault or (FAULTS if options.faults else ()):
        cases.append(Case(f"written, {fault}", knows="written", fault=fault))
    found = []
    for case in (replace(case, tls=not options.no_tls) for case in cases):
        tables.progress(case.name)
        lab = Lab(options.workers, options.edge, options.between, options.mixed)
        found.append(one := measure(case, lab, options.mib, options.logs, options.files))
        tables.progress(f"{one.last_s} s, {one.master} copies, {one.right} of {one.expected} right")
    for name in WAYS if options.others and options.files == 1 else ():
        tables.progress(name)
        try:
            found.append(
                compare(name, Lab(options.workers, options.edge, options.between, options.mixed), options.mib)
            )
        except LookupError as reason:
            tables.progress(f"left out: {reason}")
    head = ["way", "last s", "first s", "ideal s", "ratio", "from master", "A->B", "B->A", "right", "re-planned s"]
    rows = [
        [one.way, one.last_s, one.first_s, one.ideal_s, one.ratio, one.master, one.a_to_b, one.b_to_a,
         f"{one.right} of {one.expected}", "" if one.replanned_s is None else one.replanned_s]
        for one in found
    ]  # fmt: skip
    apart = ", neighbours apart" if options.mixed else ""
    title = (
        f"{options.files} x {options.mib} MiB to {options.workers} workers, {options.edge:g} Mbit/s at the edge, "
        f"{options.between:g} between the switches{apart}; copies of the file\n\n"
    )
    tables.answer([asdict(one) for one in found], title + tables.table(head, rows), options.json)


if __name__ == "__main__":
    main()
