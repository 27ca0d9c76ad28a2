"""The expected time until a task's data is at a worker, as far as large files are known: a term of policies.

A file is known if some worker has it or fetches it. A file without any copy would have to be sent to any worker, so
it makes no difference between them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from loopline_master.core.kernel.door.mechanism import DataPlaces
from loopline_master.core.wings.transfers.assumed_network import MASTER, UNKNOWN_RATE
from loopline_master.core.wings.transfers.transfer_memory import TransferMemory
from loopline_shared.job_files import input_files

if TYPE_CHECKING:
    from loopline_master.core.kernel.entities import Job
    from loopline_master.core.kernel.state import State

_MOST_NEAR = 8
LOOK_AT = 16
"""Number of tasks that are checked for one worker."""


def known_files(state: State, job: Job, task: int) -> list[str]:
    """Return the task's inputs that are large files with a copy at some worker."""
    copies = state.own(TransferMemory).transfers.copies(state.own(TransferMemory).carriers)
    own = job.spec.tasks[task - 1].inputs if job.spec.tasks else {}
    files = (*input_files(job.spec.inputs).values(), *input_files(own).values())
    return sorted({file.sha256 for file in files if file.sha256 in copies})


def near(state: State, job: Job, task: int) -> list[str]:
    """Return a few workers that have or fetch one of the task's files."""
    copies, found = state.own(TransferMemory).transfers.copies(state.own(TransferMemory).carriers), dict[str, None]()
    for file in known_files(state, job, task):
        found |= dict.fromkeys(copies[file][1][:_MOST_NEAR])
    return list(found)[:_MOST_NEAR]


def data_delay(state: State, job: Job, task: int, worker: str) -> float:
    """Return seconds until the task's files are there: fetches at their present rate, the rest over its own link."""
    carrier, copies, node = (
        state.own(TransferMemory).carriers.get(worker),
        None,
        state.own(TransferMemory).transfers.nodes.get(worker),
    )
    rate = node.down if node is not None and node.down > 0 else UNKNOWN_RATE
    missing_bytes, coming_s = 0.0, 0.0
    for file in known_files(state, job, task):
        if carrier is not None and file in carrier.has:
            continue
        transfer = carrier.fetching.get(file) if carrier is not None else None
        if transfer is not None:
            coming_s = max(coming_s, transfer.left_bytes(state.now) / (transfer.flows or transfer.rate or rate))
        else:
            copies = state.own(TransferMemory).transfers.copies(state.own(TransferMemory).carriers)
            missing_bytes += copies[file][0]
    return max(coming_s, missing_bytes / rate)


def nearer_task(state: State, job: Job, task: int, worker: str) -> int:
    """Return the task that should go to this worker in place of ``task``, whose turn it is; usually ``task`` itself.

    The job's fresh tasks are equals. The first one whose large files are at the worker is returned; otherwise the
    result of ``nearest``.
    """
    fresh, carrier = state.fresh[job.id], state.own(TransferMemory).carriers.get(worker)
    named = {number for file in (carrier.has if carrier else ()) for number in job.sweep.tasks_with(file)}
    here = [number for number in named if number in fresh and not data_delay(state, job, number, worker)]
    if here:
        return min(here)
    copies, idle = (
        state.own(TransferMemory).transfers.copies(state.own(TransferMemory).carriers),
        state.index.slots.idle.keys,
    )

    def holders(number: int) -> list[list[str]]:
        own = input_files(job.spec.tasks[number - 1].inputs) if job.spec.tasks else {}
        return [copies[file.sha256][1][:_MOST_NEAR] for file in own.values() if file.sha256 in copies]

    def following() -> Iterator[int]:
        number: int | None = task
        while number is not None:
            yield number
            number = fresh.first_after(number)

    found = nearest(
        islice(following(), LOOK_AT), worker, holders, idle, state.own(TransferMemory).transfers.switch_of
    )
    return task if found is None else found


def nearest(
    tasks: Iterable[int],
    worker: str,
    holders: Callable[[int], Sequence[Sequence[str]]],
    free: Container[str],
    switch_of: Callable[[str], str | None],
) -> int | None:
    """Return the first of these tasks whose files are all at the worker's switch, including the master's copies.

    If there is none, return the first task that no other worker suits better; None if there is none either. A free
    worker that has all files of a task suits it better, takes one such task, and will be asked next. ``holders`` has
    the workers with each of a task's files.
    """
    spoken_for, here, first = {worker}, switch_of(worker), None
    is_at_master = switch_of(MASTER) == here
    for number in tasks:
        places = holders(number)
        better = (name for name in (places[0] if places else ()) if name in free and name not in spoken_for)
        if name := next((one for one in better if all(one in names for names in places)), None):
            spoken_for.add(name)
        elif is_at_master or all(any(switch_of(one) == here for one in names) for names in places):
            return number
        elif first is None:
            first = number
    return first


class DataDelays(DataPlaces):
    """Answers from the wing's memory, by the module's functions."""

    is_known = True

    def __init__(self, state: State) -> None:
        self._state = state

    def delay(self, job: Job, task: int, worker: str) -> float:
        return data_delay(self._state, job, task, worker)

    def nearer_task(self, job: Job, task: int, worker: str) -> int:
        if not job.spec.tasks or task not in self._state.fresh[job.id]:
            return task
        return nearer_task(self._state, job, task, worker)

    def near(self, job: Job, task: int) -> list[str]:
        return near(self._state, job, task)
