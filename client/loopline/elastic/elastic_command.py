"""``loopline elastic``: workers that come and go with the work, in allocations of a cluster or by any command."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from rich.text import Text

from loopline.cli.common import PATIENCE_S, PLAIN, Common, stderr
from loopline.cli.errors import Exit, usage
from loopline.elastic.allocator import Allocator
from loopline.elastic.engine import Engine
from loopline.elastic.records import Records
from loopline.elastic.terms import DURATION, AllocationTerms, WorkerTerms
from loopline.local.stopping import run_until_stopped

_TERMS, _WORKER = AllocationTerms(), WorkerTerms()


def elastic(
    engine: Literal["slurm", "pbs", "lsf", "command"],
    *command: str,
    every: Annotated[float, DURATION] = 5.0,
    state: Path | None = None,
    dry_run: bool = False,
    terms: AllocationTerms = _TERMS,
    workers: WorkerTerms = _WORKER,
    common: Common = PLAIN,
) -> int:
    """Request workers from an engine while tasks could start, and release them when there is nothing to do.

    Each allocation is one worker, with the same name. It ends when it is idle, before its time is over, or when its
    master is away for long; it is cancelled if it has not started and is no longer needed. You can stop this program
    at any time: running workers continue and end by themselves, and the next start resumes, also after a crash.

        loopline elastic slurm --max 20 --slots 4 --time-limit 1h --queue short
        loopline elastic command --max 3 -- ssh pc7 {worker}

    Parameters
    ----------
    engine
        slurm, pbs or lsf, by PSI/J (`pip install 'loopline[elastic]'`); command: a process of this computer for each
        worker; the worker counts as gone when the process ends.
    command
        For the engine `command`: how to start a worker. The worker's command line is appended, or quoted in place of
        {worker}.
    every
        Interval between checks (default: 5s).
    state
        Folder for submissions, which the nodes must see (default: one of the platform).
    dry_run
        Only show the requests that would be made now, with the worker's command line.
    """
    if min(terms.most, terms.backlog, terms.slots, terms.pause_after) < 1:
        raise usage("--max, --backlog, --slots and --pause-after must be 1 or more")
    if terms.gres and engine in ("pbs", "lsf"):
        raise usage(f"--gres is for slurm; name the resource in the terms of {engine}: --option KEY=VALUE")
    try:
        terms.wish()
    except ValueError as malformed:
        raise usage(f"--gres or --option: {malformed}") from None
    if command and engine != "command":
        raise usage(f"{engine} needs no command", "loopline elastic command -- COMMAND starts workers by a command")
    folder = (state or platformdirs.user_state_path("loopline", appauthor=False) / "elastic" / engine).absolute()
    work = _work(engine, command, folder, terms, workers, common, None if dry_run else every)
    return run_until_stopped(work, lambda: stderr().print("\nrunning workers continue, and end when they are idle"))


async def _work(
    engine: str,
    command: tuple[str, ...],
    folder: Path,
    terms: AllocationTerms,
    workers: WorkerTerms,
    common: Common,
    every_s: float | None,
) -> int:
    """Keep allocations, or only tell what would be asked for if ``every_s`` is None."""
    async with common.client(PATIENCE_S) as client:
        records = Records(folder)
        allocator = Allocator(
            client, open_engine(engine, folder, command), records, terms.limits(workers.label), terms.wish(),
            prefix=engine, command_of=lambda name: workers.command(name, client.master, terms),
        )  # fmt: skip
        try:
            if every_s is None:
                return await _tell(allocator, shlex.join(workers.command("NAME", client.master, terms)), common)
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
            logging.getLogger("psij").setLevel(logging.ERROR)
            await allocator.keep(every_s)
            return Exit.OK
        finally:
            records.close()


async def _tell(allocator: Allocator, line: str, common: Common) -> int:
    await allocator.look()
    decided = await allocator.decide()
    words = f"would ask for {decided.submit} and call back {len(decided.cancel)}: {decided.why}"
    common.show(asdict(decided) | {"command": line}, lambda: Text(f"{words}\neach runs: {line}"))
    return Exit.OK


def open_engine(kind: str, folder: Path, words: Sequence[str]) -> Engine:
    """Return the engine of this name; ``words``: the command that starts a worker, of the engine `command`."""
    if kind == "command":
        from loopline.elastic.command_engine import CommandEngine

        return CommandEngine(folder / "processes", words)
    from loopline.elastic.psij_engine import PsijEngine

    return PsijEngine(kind, folder / "psij")
