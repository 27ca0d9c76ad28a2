"""Requirement classes as keys: their requirements, and the workers that meet them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from math import ceil

from loopline_master.core.kernel.entities import Needs
from loopline_master.core.kernel.index.units import RequirementClass, ResourceNeeds
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import Facts, Resource
from loopline_shared.protocol.gpus import ANY_GPU, COMPUTER, GPU, WHOLE_GPU
from loopline_shared.protocol.software import PACKAGES, words_for

WorkerKind = tuple[object, ...]
"""Facts that decide which requirement classes a worker meets, so that equal workers share an answer."""


def requirement_class_of(
    requires: Requirements, nodes: int = 1, owner: str = "", *, limits: Container[str] = (), alone: int = 0
) -> RequirementClass:
    """Return the requirement class; it is equal for requirements of one user that the same workers meet.

    Jobs on several ``nodes`` have a class for each number of nodes, as each task needs that many workers at once.
    Each user has separate classes, because the turn is decided between users first. ``limits``: needs of these names
    are of the grid's limits, and others of a worker's resources. ``alone``: the number of a job that limits its
    running attempts, and has a class of its own; 0 for any other job.
    """
    resources: ResourceNeeds = ()
    of_limits: Needs = ()
    if needs := requires.units:
        kinds = {GPU: requires.gpu_kind}
        resources = tuple((name, units, kinds.get(name, ANY_GPU)) for name, units in needs if name not in limits)
        of_limits = tuple((name, nodes * units) for name, units in needs if name in limits)
    return (
        requires.os,
        requires.memory_bytes,
        frozenset(requires.labels),
        requires.slots,
        requires.network,
        requires.python,
        requires.folder,
        requires.software.ability if requires.software else "",
        nodes,
        owner,
        resources,
        of_limits,
        alone,
    )


def slots_of(key: RequirementClass) -> int:
    """Return the slots that one task of the class occupies."""
    return key[3]


def nodes_of(key: RequirementClass) -> int:
    """Return the number of workers that one task of the class needs at once."""
    return key[8]


def owner_of(key: RequirementClass) -> str:
    """Return the user who owns the class's jobs."""
    return key[9]


def resources_of(key: RequirementClass) -> ResourceNeeds:
    """Return the units of a worker's resources that each attempt of the class holds."""
    return key[10]


def limits_of(key: RequirementClass) -> Needs:
    """Return the units of the grid's limits that each task of the class holds, on all of its nodes together."""
    return key[11]


def alone_in(key: RequirementClass) -> int:
    """Return the number of the only job of the class, which limits its running attempts; 0 for any other class."""
    return key[12]


def demands_of(key: RequirementClass) -> tuple[object, ...]:
    """Return the part of a class that ``meets`` reads: classes with equal parts are met by the same workers."""
    return *key[:9], key[10]


def holds_units(key: RequirementClass) -> bool:
    """True if each attempt of the class holds units of something countable."""
    return bool(key[10] or key[11] or key[12])


def meets(facts: Facts, key: RequirementClass, most_bytes: int | None = None) -> bool:
    """True if a computer with these facts, otherwise idle, could run a job of the class.

    ``most_bytes`` replaces its memory if given.
    """
    os, memory_bytes, labels, slots, network, python, folder, software, nodes, _, resources, _, _ = key
    return (
        (os is None or facts.os == os)
        and (facts.memory_bytes if most_bytes is None else most_bytes) >= memory_bytes
        and (not labels or labels <= set(facts.labels))
        and facts.slots >= slots
        and (facts.network or not network or (facts.gang_network and nodes > 1))
        and (python is None or facts.functions == python or f"{PACKAGES}{python}" in facts.software)
        and (not software or software in facts.software)
        and (not folder or any(folder == one or folder.startswith(f"{one}/") for one in facts.folders))
        and (nodes == 1 or (facts.gangs and facts.until is None))
        and (not resources or _offers(facts, resources))
    )


def _offers(facts: Facts, resources: ResourceNeeds) -> bool:
    offered = {one.name: one for one in facts.resources}
    return all(
        name == COMPUTER
        or (
            name in offered
            and (sum(map(kind.includes, offered[name].gpus)) if name == GPU else offered[name].units) >= units
        )
        for name, units, kind in resources
    )


def slots_taken(facts: Facts, key: RequirementClass, offered_slots: int) -> int:
    """Return the slots of a computer that other tasks of the class cannot use while one runs there.

    A task that needs half of the computer's GPUs takes half of the offered slots.
    """
    at_once, offered = offered_slots, {one.name: one for one in facts.resources}
    for name, units, kind in resources_of(key):
        if name == COMPUTER:
            return facts.slots
        if name == GPU and name in offered:
            parts = sum(min(gpu.shares, WHOLE_GPU // kind.part) for gpu in offered[name].gpus if kind.includes(gpu))
            at_once = min(at_once, parts // units)
        elif name in offered:
            at_once = min(at_once, offered[name].units // units)
    return max(slots_of(key), ceil(offered_slots / max(1, at_once)))


def kind_of(facts: Facts, memory: int | None = None) -> WorkerKind:
    """Return all facts that ``meets`` reads; ``memory`` replaces theirs if given."""
    return (
        facts.os,
        facts.memory_bytes if memory is None else memory,
        facts.labels,
        facts.slots,
        facts.network,
        facts.gang_network,
        facts.functions,
        facts.software,
        facts.folders,
        facts.gangs,
        facts.until is None,
        facts.resources and tuple(map(_kind_of_resource, facts.resources)),
    )


def _kind_of_resource(resource: Resource) -> tuple[object, ...]:
    return resource.name, resource.units, tuple(sorted(gpu.details for gpu in resource.gpus))


def needs(requires: Requirements) -> list[str]:
    """Return the requirements that a worker must meet, each in a few words."""
    return [words for words, _ in _parts(requires)]


def unmet(facts: Iterable[Facts], requires: Requirements, limits: Container[str]) -> list[str]:
    """Return the requirements that no worker meets; empty if only their combination is too much.

    ``limits``: the names of the grid's limits.
    """
    known = list(facts)
    alone = [(words, requirement_class_of(part, limits=limits)) for words, part in _parts(requires)]
    return [words for words, key in alone if not any(meets(one, key) for one in known)]


def _parts(requires: Requirements) -> list[tuple[str, Requirements]]:
    """Return each requirement alone, with its words."""
    parts = [(f"the system {requires.os}", Requirements(os=requires.os))] if requires.os else []
    if requires.memory_bytes:
        words = f"{requires.memory_bytes / 1e9:g} GB of memory"
        parts.append((words, Requirements(memory_bytes=requires.memory_bytes)))
    parts += [(f"label {label}", Requirements(labels=[label])) for label in requires.labels]
    parts += [("the network", Requirements(network=True))] if requires.network else []
    if requires.python:
        parts.append((f"functions of Python {requires.python}", Requirements(python=requires.python)))
    if requires.folder:
        parts.append((f"the folder {requires.folder} to share", Requirements(folder=requires.folder)))
    if requires.software:
        parts.append((words_for(requires.software.ability), Requirements(software=requires.software)))
    for name, units in sorted(requires.needs.items()):
        words = name if units == 1 else f"{units} {name}"
        parts.append((words, Requirements(needs={name: units})))
    parts += _gpu_parts(requires) if requires.gpus else []
    words = f"{requires.slots} slot{'' if requires.slots == 1 else 's'}"
    return [*parts, (words, Requirements(slots=requires.slots))]


def _gpu_parts(requires: Requirements) -> Iterator[tuple[str, Requirements]]:
    many = f"{requires.gpus:g} GPU{'' if requires.gpus <= 1 else 's'}"
    yield many, Requirements(gpus=requires.gpus)
    if requires.gpu_memory_bytes:
        words = f"{many} of {requires.gpu_memory_bytes / 1e9:g} GB"
        yield words, Requirements(gpus=requires.gpus, gpu_memory_bytes=requires.gpu_memory_bytes)
    if requires.gpu_model:
        yield f"{many} of model {requires.gpu_model}", Requirements(gpus=requires.gpus, gpu_model=requires.gpu_model)
    if capability := requires.gpu_capability:
        words = f"{many} of compute capability {capability}"
        yield words, Requirements(gpus=requires.gpus, gpu_capability=capability)
