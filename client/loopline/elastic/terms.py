"""Terms of ``loopline elastic``: number and parameters of allocations, and the start of their workers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from loopline.cli import values
from loopline.cli.common import read_by
from loopline.elastic.engine import Wish
from loopline.elastic.plan import Limits
from loopline_shared.protocol.gpus import COMPUTER, GPU

DURATION = read_by(values.duration, "DURATION")
_KEPT_IN = 'trap : TERM; "$@"; code=$?; rm -rf "$0"; exit $code'
"""The worker's folder goes with the worker; a signal is for the worker, and the shell waits for its end."""


@Parameter(name="*", group=Group("Allocations", sort_key=6))
@dataclass(frozen=True, kw_only=True)
class AllocationTerms:
    """Number and parameters of allocations.

    Parameters
    ----------
    most
        Allocations at a time, queued ones included (default: 10).
    backlog
        Queued allocations at a time (default: 4).
    slots
        Slots of each worker, and cores of each allocation (default: 1).
    gpus
        GPUs of each allocation (default: 0); tasks that need more do not count.
    gres
        Another resource of each allocation, and of its worker: NAME=N, such as fpga=1, as in Slurm's --gres.
    time_limit
        Time limit of each allocation (default: 1h).
    memory
        Memory of each allocation, such as 8GB; tasks that need more do not count.
    queue
        The engine's queue or partition.
    account
        The account to charge.
    option
        Further options for the engine, in its own terms: KEY=VALUE.
    pause_after
        Number of workers in a row that never joined, after which requests pause (default: 3).
    pause
        Length of that pause (default: 5m).
    """

    most: Annotated[int, Parameter(name="--max")] = 10
    backlog: int = 4
    slots: int = 1
    gpus: int = 0
    gres: Annotated[tuple[str, ...], Parameter(metavar="NAME[=N]")] = ()
    time_limit: Annotated[float, DURATION] = 3600.0
    memory: Annotated[int | None, read_by(values.memory, "BYTES")] = None
    queue: str = ""
    account: str = ""
    option: Annotated[tuple[str, ...], Parameter(metavar="KEY=VALUE")] = ()
    pause_after: int = 3
    pause: Annotated[float, DURATION] = 300.0

    @property
    def resources(self) -> dict[str, int]:
        """Units of other resources than GPUs. Raises ValueError if one is malformed."""
        found = dict(values.need(one) for one in self.gres)
        if GPU in found or COMPUTER in found or any(":" in name for name in found):
            raise ValueError("--gres takes NAME=N of other resources than GPUs, which are --gpus")
        return found

    def limits(self, labels: tuple[str, ...]) -> Limits:
        """Return the limits of the plan, for workers with these labels."""
        return Limits(
            most=self.most,
            backlog=self.backlog,
            slots=self.slots,
            resources={**self.resources, GPU: self.gpus},
            time_limit_s=self.time_limit,
            memory_bytes=self.memory,
            labels=labels,
            pause_after=self.pause_after,
            pause_s=self.pause,
        )

    def wish(self) -> Wish:
        """Return the parameters for an engine. Raises ValueError if a resource or an option is malformed."""
        return Wish(
            self.slots,
            self.time_limit,
            gpus=self.gpus,
            resources=self.resources,
            memory_bytes=self.memory,
            queue=self.queue,
            account=self.account,
            options=dict(values.pair(one) for one in self.option),
        )


@Parameter(name="*", group=Group("Workers", sort_key=7))
@dataclass(frozen=True, kw_only=True)
class WorkerTerms:
    """Start of the worker of an allocation, and when it ends by itself.

    Parameters
    ----------
    idle
        Time without a task after which a worker ends (default: 1m).
    death
        Time without its master after which a worker ends (default: 5m).
    label
        A label of each worker; jobs may require it.
    worker
        Command of a worker on the nodes (default: this computer's `loopline worker`).
    token_file
        File with the join token, which the nodes must see (default: a worker's own default).
    scratch
        Folder on the nodes for the workers' own folders, which are removed at the end (default: /tmp).
    """

    idle: Annotated[float, DURATION] = 60.0
    death: Annotated[float, DURATION] = 300.0
    label: tuple[str, ...] = ()
    worker: str = ""
    token_file: Path | None = None
    scratch: str = "/tmp"  # noqa: S108 - of the nodes, in a folder of the worker's own name

    def command(self, name: str, master: str, terms: AllocationTerms) -> Sequence[str]:
        """Return the command line that an allocation of this name runs."""
        own = f"{self.scratch}/{name}"
        line = shlex.split(self.worker) or [sys.executable, "-P", "-m", "loopline", "worker"]
        line += ["--master", master, "--name", name, "--data-dir", own, "--slots", str(terms.slots)]
        line += ["--until", f"{terms.time_limit:.0f}s", "--idle-timeout-s", f"{self.idle:g}"]
        line += ["--death-timeout-s", f"{self.death:g}", "--dedicated", "--no-owner-page", "--transient"]
        line += [word for one in self.label for word in ("--label", one)]
        line += [word for name, units in terms.resources.items() for word in ("--resource", f"{name}={units}")]
        line += ["--token-file", str(self.token_file.absolute())] if self.token_file else []
        return ["/bin/sh", "-c", _KEPT_IN, own, *line]
