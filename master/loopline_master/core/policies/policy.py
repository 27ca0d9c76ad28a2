"""Policy: the scheduler's source of proposals, registered under a name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from loopline_master.core.policies.view import View
from loopline_master.core.state import PolicyIndex


@dataclass(slots=True)  # not frozen: one is made for each attempt
class Placement:
    """A proposal: an attempt at this task on this worker, which is prefetched if all slots there are busy."""

    job: int
    task: int
    worker: str
    spent: tuple[Placement, ...] = ()
    """Placements of held tasks whose jobs spend their turn, just before this one."""


@dataclass(frozen=True, slots=True)
class Later:
    """An answer: nothing now, ask again at this time (or earlier, if something happens before)."""

    at: float


Proposal = Placement | Later


class Policy(ABC):
    """Either kind of policy, made anew whenever it comes into force. It decides from rows alone."""

    replicates = False
    """A worker is asked about also where there is nothing to start, for there may be something to replicate."""
    prefetches = True
    """Tasks may wait at busy workers, as far as the settings let any."""
    prefetch_s: float | None = None
    """So much expected work may wait for each slot of a worker, if the settings let any; None: as they say."""
    index: PolicyIndex | None
    """The policy's own index, if it needs one, made from the View."""

    def __init__(self, view: View) -> None:
        """Make the policy's own index; one that needs none leaves this as it is."""
        self.index = None

    @abstractmethod
    def plan(self, view: View) -> Iterator[Proposal]:
        """Return proposals for free workers. Each is accepted or refused before the next is drawn."""

    @abstractmethod
    def prefetch(self, view: View) -> Iterator[Proposal]:
        """Return proposals for busy workers with room, asked after those for free ones."""


REGISTRY: dict[str, type[Policy]] = {}
"""All policies by name. ``loopline_master.core.policies`` has it filled."""

Registered = TypeVar("Registered", bound=type[Policy])


def register(name: str) -> Callable[[Registered], Registered]:
    """Return a decorator that registers a policy under this name."""

    def enter(policy: Registered) -> Registered:
        if name in REGISTRY:
            raise ValueError(f"two policies are called {name}: {REGISTRY[name].__module__} and {policy.__module__}")
        REGISTRY[name] = policy
        return policy

    return enter
