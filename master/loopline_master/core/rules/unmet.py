"""Requirements of a job in words, and those of them that no worker meets."""

from __future__ import annotations

from collections.abc import Iterable

from loopline_master.core.entities import Worker
from loopline_master.core.index.requirements import meets, requirement_class_of
from loopline_shared.spec import Requirements


def needs(requires: Requirements) -> list[str]:
    """Return what a worker must have to run the job, each in a few words."""
    return [words for words, _ in _parts(requires)]


def unmet(workers: Iterable[Worker], requires: Requirements) -> list[str]:
    """Return the requirements that none of the workers meets; empty if only all of them together are too much."""
    known = list(workers)
    return [
        words
        for words, alone in _parts(requires)
        if not any(meets(worker.facts, requirement_class_of(alone)) for worker in known)
    ]


def _parts(requires: Requirements) -> list[tuple[str, Requirements]]:
    """Return each requirement in words, and by itself."""
    parts = [(f"the system {requires.os}", Requirements(os=requires.os))] if requires.os else []
    if requires.memory_bytes:
        words = f"{requires.memory_bytes / 1e9:g} GB of memory"
        parts.append((words, Requirements(memory_bytes=requires.memory_bytes)))
    parts += [(f"label {label}", Requirements(labels=[label])) for label in requires.labels]
    parts += [("the network", Requirements(network=True))] if requires.network else []
    if requires.python:
        parts.append((f"functions of Python {requires.python}", Requirements(python=requires.python)))
    words = f"{requires.slots} slot{'' if requires.slots == 1 else 's'}"
    return [*parts, (words, Requirements(slots=requires.slots))]
