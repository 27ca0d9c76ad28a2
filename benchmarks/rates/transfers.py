"""One file to every worker of a lab with two switches and a narrow cable between: ``python -m
benchmarks.rates.transfers``.

The time until the last worker's task has the file, compared with size / narrowest link; and how often the file has
left the master and crossed the cable. From the master alone; between workers as the network is assumed, as a file
before has shown it (learnt), as `loopline network measure` finds it, and as written down. With ``--faults``, also
while a worker in the middle is killed, stopped or cut off halfway, or sends wrong bytes or none from its start on;
while the cable is halved halfway; or the master is killed once some worker has all: then the output has the time
until the next plan. With ``--others``, libtorrent, udpcast and rsync, without Loopline. With ``--mixed``, neighbours
in name are at different switches. With ``--files 4``, as many jobs at once, each with a file of its own for its share
of the workers: then the time is the makespan. The network is made of namespaces (benchmarks/harness/lab.py), which
needs root.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.harness import tables
from benchmarks.harness.lab import Lab, obstacle
from benchmarks.harness.lab_copies import WAYS
from benchmarks.harness.lab_grid import FAULTS, FAULTY, KNOWS, WITHIN_S, Case, LabGrid, make


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
    lies: int = 0  # wrong pieces received
    is_quarantined: bool = False  # the faulty worker is


def measure(case: Case, lab: Lab, mib: int, keep: Path | None, count: int = 1) -> Measured:
    """Run a grid once, with ``count`` files."""
    folder = Path(tempfile.mkdtemp(prefix="lab"))
    try:
        files = [folder / f"large-{number}.bin" for number in range(count)]
        made, size_bytes = {make(file, mib) for file in files}, mib * 2**20
        grid = LabGrid(lab, folder, case)
        expected = lab.workers - (case.fault in ("worker killed", "worker stopped", "worker cut off", "worker lies"))
        begin = fault_at = 0.0
        with lab.built(), grid.running():
            if case.knows == "measured":
                grid.measure_network()
            if case.knows == "learnt":
                make(other := folder / "other.bin", mib)
                grid.learn(other)
            carried = lab.sent_bytes()
            begin = grid.submit(files)
            while len(grid.arrivals()) < expected and time.time() < begin + WITHIN_S:
                time.sleep(0.05)
                if case.fault and not fault_at and grid.is_time(case.fault, size_bytes):
                    fault_at = time.time()
                    grid.befall(case.fault)
            sent = {name: (at - carried[name]) / size_bytes / count for name, at in lab.sent_bytes().items()}
            arrived = grid.arrivals()
            lies, is_quarantined = grid.lies(), case.fault in FAULTY and grid.is_quarantined()
        replanned_s = grid.replanned_s(fault_at) if fault_at and case.fault != "master killed" else None
    finally:
        if keep:
            for log in (*folder.glob("*.log"), folder / "master" / "loopline.db"):
                shutil.copy(log, keep / f"{case.name.replace(' ', '-')}-{log.name.removeprefix(lab.prefix)}")
        shutil.rmtree(folder, ignore_errors=True)
    right = sum(sha256 in made for _, sha256 in arrived)
    found = _measured(case.name, lab, count * size_bytes, [at - begin for at, _ in arrived], sent, (right, expected))
    return replace(found, replanned_s=replanned_s, lies=lies, is_quarantined=is_quarantined)


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


def _options() -> argparse.Namespace:
    asking = tables.parser(__doc__)
    asking.add_argument("--workers", type=int, default=8)
    asking.add_argument("--mib", type=int, default=16)
    asking.add_argument("--files", type=int, default=1, help="jobs at once, each with a file of its own")
    asking.add_argument("--edge", type=float, default=100.0, help="Mbit/s of each host's link")
    asking.add_argument("--between", type=float, default=25.0, help="Mbit/s between the switches")
    asking.add_argument("--faults", action="store_true", help=f"also with each of these: {', '.join(FAULTS)}")
    asking.add_argument("--fault", action="append", help="only with this one, such as 'master killed'")
    asking.add_argument("--no-tls", action="store_true", help="in the clear, as a grid of 0.1 goes on")
    asking.add_argument("--mixed", action="store_true", help="neighbours in name are at different switches")
    asking.add_argument("--others", action="store_true", help="also libtorrent, udpcast and rsync")
    asking.add_argument("--knows", action="append", help="assumed, learnt, measured or written; default: all")
    asking.add_argument("--without-master-alone", action="store_true", help="leave out the slow way")
    asking.add_argument(
        "--logs", type=Path, help="a folder for the logs and the master's database, whose log has the plans"
    )
    options = asking.parse_args()
    if options.full:
        options.workers, options.mib, options.faults, options.others = 16, 64, True, True
    return options


def _cases(options: argparse.Namespace) -> list[Case]:
    cases = [] if options.without_master_alone else [Case("from the master alone", peers=False)]
    cases += [Case(f"between workers, {knows}", knows=knows) for knows in options.knows or KNOWS]
    for fault in options.fault or (FAULTS if options.faults else ()):
        cases.append(Case(f"written, {fault}", knows="written", fault=fault))
    return [replace(case, tls=not options.no_tls) for case in cases]


def _show(found: Sequence[Measured], options: argparse.Namespace) -> None:
    head = [
        "way",
        "last s",
        "first s",
        "ideal s",
        "ratio",
        "from master",
        "A->B",
        "B->A",
        "right",
        "re-planned s",
        "lies",
    ]
    rows = [
        [one.way, one.last_s, one.first_s, one.ideal_s, one.ratio, one.master, one.a_to_b, one.b_to_a,
         f"{one.right} of {one.expected}", "" if one.replanned_s is None else one.replanned_s,
         f"{one.lies}{', quarantined' if one.is_quarantined else ''}"]
        for one in found
    ]  # fmt: skip
    apart = ", neighbours apart" if options.mixed else ""
    title = (
        f"{options.files} x {options.mib} MiB to {options.workers} workers, {options.edge:g} Mbit/s at the edge, "
        f"{options.between:g} between the switches{apart}; copies of the file\n\n"
    )
    tables.answer([asdict(one) for one in found], title + tables.table(head, rows), options.json)


def main() -> None:
    options = _options()
    if reason := obstacle():
        print(f"Not run: {reason}.")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped: the lab is taken down"))
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
    found = []
    for case in _cases(options):
        tables.progress(case.name)
        lab = Lab(options.workers, options.edge, options.between, options.mixed)
        found.append(one := measure(case, lab, options.mib, options.logs, options.files))
        tables.progress(f"{one.last_s} s, {one.master} copies, {one.right} of {one.expected} right")
    for name in WAYS if options.others and options.files == 1 else ():
        tables.progress(name)
        lab = Lab(options.workers, options.edge, options.between, options.mixed)
        try:
            found.append(compare(name, lab, options.mib))
        except LookupError as reason:
            tables.progress(f"left out: {reason}")
    _show(found, options)


if __name__ == "__main__":
    main()
