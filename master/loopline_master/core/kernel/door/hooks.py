"""Wings of one scheduler, and their hooks as the kernel calls them: tuples that are mostly empty."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

from loopline_master.core.kernel.door.mechanism import Handler, Mechanism, Purpose, Veto
from loopline_master.core.kernel.entities import Job, Worker

W = TypeVar("W", bound=Mechanism)
Given = ParamSpec("Given")
Returned = TypeVar("Returned")


class Wings:
    """A tuple for each hook: the methods of the wings that override it, and are awake if the hook requires that."""

    def __init__(self, wings: Iterable[Mechanism]) -> None:
        self.all = standing = tuple(wings)
        self.events = defaultdict[type, list[Handler]](list)
        self.parts: list[tuple[str, Callable[[Worker, Any], None]]] = []
        for wing in self.all:
            self.parts += wing.parts().items()
            for event, handle in wing.handlers().items():
                self.events[event].append(handle)
        self.admit = _overriding(standing, Mechanism.admit)
        self.enters = [
            (tuple(map(attrgetter, wing.concerns)), wing.enters)
            for wing in standing
            if type(wing).enters is not Mechanism.enters
        ]
        self.reported = [(field, wing.brings_news) for wing in standing for field in wing.reported]
        self.settings_change = _overriding(standing, Mechanism.settings_change)
        self.worker_left = _overriding(standing, Mechanism.worker_left)
        self.needs = _overriding(standing, Mechanism.needs)
        self.excuses = _overriding(standing, Mechanism.excuses)
        self.workers_to_hear = _overriding(standing, Mechanism.workers_to_hear)
        self.arrange()

    def __getitem__(self, kind: type[W]) -> W:
        """Return the wing of this class. Raises KeyError if the scheduler has none."""
        for wing in self.all:
            if isinstance(wing, kind):
                return wing
        raise KeyError(kind)

    def arrange(self) -> None:
        """Update the tuples after a wing woke up or fell asleep."""
        self.awake = awake = [wing for wing in self.all if wing.is_awake]
        self.brings_news = _overriding(awake, Mechanism.brings_news)
        self.due_at = _overriding(awake, Mechanism.due_at)
        self.expire = _overriding(awake, Mechanism.expire)
        self.place = _overriding(awake, Mechanism.place)
        self.in_turn = _overriding(awake, Mechanism.in_turn)
        self.replicate = _overriding(awake, Mechanism.replicate)
        self.finish_step = _overriding(awake, Mechanism.finish_step)
        self.addressees = _overriding(awake, Mechanism.addressees)
        self.vetoes = _overriding(awake, Mechanism.veto)
        self.turn_passes = _overriding(awake, Mechanism.turn_passes)
        self.role_changes = _overriding(awake, Mechanism.role_changes)
        self.load_changes = _overriding(awake, Mechanism.load_changes)
        self.exemption_changes = _overriding(awake, Mechanism.exemption_changes)
        self.most_waiting = _overriding(awake, Mechanism.most_waiting)
        self.overtaken = _overriding(awake, Mechanism.overtaken)
        self.begins = _overriding(awake, Mechanism.begins)
        self.decides = _overriding(awake, Mechanism.decides)
        self.attempt_ended = _overriding(awake, Mechanism.attempt_ended)
        self.task_ended = _overriding(awake, Mechanism.task_ended)
        self.verdict = _overriding(awake, Mechanism.verdict)
        self.accuse = _overriding(awake, Mechanism.accuse)
        self.ranks = _overriding(awake, Mechanism.rank)
        self.assign = _overriding(awake, Mechanism.assign)

    def veto(self, job: Job, task: int, worker: Worker, purpose: Purpose) -> Veto | None:
        """Return an objection to this attempt, preferably one that does not spend the job's turn."""
        found = None
        for veto in self.vetoes:
            objection = veto(job, task, worker, purpose)
            if objection is not None:
                if not objection.spends_turn:
                    return objection
                found = objection
        return found

    def rank(self, owner: str) -> float:
        """Return the user's use of the grid, relative to their share; the least is next. 0 without accounts."""
        return sum(rank(owner) for rank in self.ranks)


def _overriding(
    wings: Iterable[Mechanism], hook: Callable[Concatenate[Any, Given], Returned]
) -> tuple[Callable[Given, Returned], ...]:
    """Return the bound methods of the wings that override a hook."""
    name = hook.__name__
    return tuple(getattr(wing, name) for wing in wings if getattr(type(wing), name) is not hook)
