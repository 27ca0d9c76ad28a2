"""Options that experiments share: jobs, machines, the number of runs, and where they run."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from loopline_master.core.policies import COMPARED, REGISTRY
from loopline_shared.errors import LooplineError
from loopline_simulator.fast.hosts import Pattern
from loopline_simulator.fast.machines import FITTED, PATTERN_1, PATTERN_2, Park
from loopline_simulator.fast.workload import Arrivals, Sizes, Workload
from loopline_simulator.kept_runs import KeptRuns
from loopline_simulator.progress import progress_bar
from loopline_simulator.sweep import MakeExecutor, on_cores, on_dask, on_grid, sweep

Item = TypeVar("Item")
Answer = TypeVar("Answer")

Positive = Annotated[float, Parameter(validator=Number(gt=0, lte=1e9))]
Several = Parameter(
    consume_multiple=True, negative=(), show_default=lambda values: " ".join(map(str, values)) or "none"
)
Positives = Annotated[tuple[Positive, ...], Several]
Count = Annotated[int, Parameter(validator=Number(gte=1, lte=10**6))]


def usage(message: str, hint: str = "") -> LooplineError:
    return LooplineError("usage", message, hint)


def known_policy(name: str) -> str:
    """Return the policy's name. Raises LooplineError with the nearest name if the policy is unknown."""
    known = [*REGISTRY, *COMPARED]
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
    raise usage(f"there is no policy {name!r}", hint)


@Parameter(name="*", group=Group("Jobs", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Jobs that are submitted.

    Parameters
    ----------
    jobs
        Number of jobs.
    tasks
        Number of tasks of each job.
    smallest
        Size of the smallest task, in reference CPU-seconds (10,000 instructions of the paper).
    largest
        Size of the largest task, in reference CPU-seconds.
    sizes
        Distribution of job sizes: equal, or a random factor of mean 1.
    decades
        Decades over which unequal jobs spread (lognormal: 95 % of them).
    arrivals
        Arrivals at equal intervals, or as a Poisson process.
    intervals
        Mean times between two arrivals; a table for each.
    load
        Load in place of intervals: work that arrives, as a share of the mean work that all machines can do.
    """

    jobs: Count = 32
    tasks: Count = 128
    smallest: Positive = 200.0
    largest: Positive = 600.0
    sizes: Sizes = Sizes.EQUAL
    decades: Annotated[float, Parameter(validator=Number(gte=0, lte=6))] = 2.0
    arrivals: Arrivals = Arrivals.EQUAL
    intervals: Positives = (50.0, 100.0, 200.0)
    load: Annotated[tuple[Annotated[float, Parameter(validator=Number(gt=0, lte=100))], ...], Several] = ()

    def workloads(self, park: Park) -> list[Workload]:
        if self.smallest > self.largest:
            raise usage(f"the smallest task ({self.smallest:g}) is larger than the largest ({self.largest:g})")
        capacity, some = park.capacity, self._at(1.0)
        intervals = [some.interval_for(load, capacity) for load in self.load] or self.intervals
        return [self._at(interval) for interval in sorted(set(intervals))]

    def _at(self, interval: float) -> Workload:
        return Workload(
            self.jobs,
            self.tasks,
            self.smallest,
            largest=self.largest,
            sizes=self.sizes,
            decades=self.decades,
            arrivals=self.arrivals,
            interval=interval,
        )


@Parameter(name="*", group=Group("Machines", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Machines that the jobs run on.

    Parameters
    ----------
    pcs
        Number of PCs, in equal shares of each peak speed.
    peaks
        Peak speeds, in reference CPU-seconds per second.
    fit
        Factor on all speeds: the one number fitted to the paper's mean totals; 1: as the paper says.
    patterns
        Patterns of owners' use, one of these at random for each PC: 1 and 2 are the paper's; another is written
        TO_LOADED/TO_STEADY/STEADY_LOW-HIGH/LOADED_LOW-HIGH (as 1: 0.001/0.01/0.95-1/0-0.05); `steady`: no use at all.
    watts
        Power of a busy PC above idle, in watts, one for all or one for each peak speed: prints kWh.
    """

    pcs: Count = 128
    peaks: Positives = (1.0, 2.0, 4.0)
    fit: Positive = FITTED
    patterns: Annotated[tuple[str, ...], Several] = ("1", "2")
    watts: Positives = ()

    def park(self) -> Park:
        patterns = () if self.patterns == ("steady",) else tuple(map(read_pattern, self.patterns))
        if len(self.watts) not in (0, 1, len(self.peaks)):
            raise usage(f"there are {len(self.watts)} values of --watts", "give one, or one for each of --peaks")
        return Park(self.pcs, self.peaks, patterns, self.fit, self.watts)


def read_pattern(text: str) -> Pattern:
    """Read ``1``, ``2``, or the four parts of a pattern. Raises LooplineError with the mistake."""
    if text in ("1", "2"):
        return PATTERN_1 if text == "1" else PATTERN_2
    try:
        to_loaded, to_steady, steady, loaded = text.split("/")
        pattern = Pattern(float(to_loaded), float(to_steady), _bounds(steady), _bounds(loaded))
    except ValueError:
        raise usage(f"{text!r} is not a pattern of speed", "write it like 0.001/0.01/0.95-1/0-0.05") from None
    chances, shares = (pattern.to_loaded, pattern.to_steady), (*pattern.steady, *pattern.loaded)
    if not all(0 < chance <= 1 for chance in chances) or not all(0 <= share <= 1 for share in shares):
        raise usage(f"in the pattern {text!r}, probabilities and shares of the peak must be from 0 to 1")
    if not pattern.steady[1] > 0:
        raise usage(f"with the pattern {text!r} a PC would never get anything done")
    return pattern


def _bounds(text: str) -> tuple[float, float]:
    low, high = map(float, text.split("-"))
    return min(low, high), max(low, high)


@Parameter(name="*", group=Group("Runs", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Number of runs, and where they run.

    Parameters
    ----------
    seeds
        Runs of each setting; the 95 % intervals are over them.
    first_seed
        Number of the first seed; the others follow it.
    processes
        Processes on this computer (default: one for each core). The answer does not depend on it.
    dask
        Run on the Dask cluster whose scheduler has this address, such as tcp://127.0.0.1:8786.
    grid
        Run on the Loopline grid that LOOPLINE_MASTER or loopline.toml names; its workers' Python needs loopline[sim].
    json
        Answer with JSON only, on stdout.
    csv
        Answer with CSV only, on stdout: a line for each run, a column for each figure.
    out
        Write tables, CSV, JSON, and pictures if there are any, into this folder.
    keep
        Keep runs in this file: an interrupted sweep, or one with more seeds, continues from there. Runs of other code
        are not used.
    """

    seeds: Count = 10
    first_seed: Annotated[int, Parameter(validator=Number(gte=0, lte=10**9))] = 1
    processes: Annotated[int | None, Parameter(validator=Number(gte=1, lte=1024))] = None
    dask: str | None = None
    grid: bool = False
    json: bool = False
    csv: bool = False
    out: Path | None = None
    keep: Path | None = None

    @property
    def seed_numbers(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)

    def sweep(
        self,
        run: Callable[[Item], Answer],
        cases: Sequence[Item],
        events_of: Callable[[Answer], int],
        *,
        what: str = "runs",
    ) -> list[Answer]:
        """Return the answer of every case, with a progress bar. What the file of ``keep`` has is not run again."""
        if self.json and self.csv:
            raise usage("an answer is either --json or --csv", "--out DIR writes both")
        if self.keep is None:
            with progress_bar(what, len(cases), events_of) as shown:
                return sweep(run, cases, self.executor(), shown)
        kept = KeptRuns(run, self.keep)
        found = {place: answer for place, case in enumerate(cases) if (answer := kept.get(case)) is not None}
        missing = [(run, place, case) for place, case in enumerate(cases) if place not in found]
        with progress_bar(what, len(missing), lambda one: events_of(one[1])) as shown:

            def came(one: tuple[int, Answer]) -> None:
                found[one[0]] = one[1]
                kept.add(cases[one[0]], one[1])
                shown(one)

            sweep(_run_numbered, missing, self.executor(), came)
        return [found[place] for place in range(len(cases))]

    def executor(self) -> MakeExecutor:
        if bool(self.dask) + bool(self.processes) + self.grid > 1:
            raise usage("a sweep runs either on --processes of this computer, on the cluster of --dask, or on --grid")
        if self.grid:
            return on_grid()
        return on_dask(self.dask) if self.dask else on_cores(self.processes)


def _run_numbered(numbered: tuple[Callable[[Any], Any], int, Any]) -> tuple[int, Any]:
    run, place, case = numbered
    return place, run(case)


@Parameter(name="*", group=Group("Runs", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class ManyRuns(SweepOptions):
    """Sweep options with the 30 replications of the older papers."""

    seeds: Count = 30


JOBS, MACHINES, RUNS, MANY_RUNS = JobOptions(), MachineOptions(), SweepOptions(), ManyRuns()
"""Defaults of the options."""
