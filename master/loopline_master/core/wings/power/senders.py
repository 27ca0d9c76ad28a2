"""Senders: the awake workers that send magic packets, each into its own subnet."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from loopline_master.core.kernel.entities import Worker
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.power.sleeper import Sleeper, Sleepers
from loopline_shared.protocol.power import WakeTarget


class Senders:
    """The awake workers by subnet, and their targets. Empty while no computer is being woken."""

    def __init__(self, state: State, sleepers: Sleepers) -> None:
        self._state, self._sleepers = state, sleepers
        self._in: dict[str, list[str]] = {}  # awake workers by subnet, in alphabetical order
        self._subnets: dict[str, str] = {}  # by awake worker
        self._targets: dict[str, list[WakeTarget]] = {}  # by sender

    def update(self) -> None:
        """Take in the changes of this step. Costs O(workers) only when the first computer is being woken."""
        effects, waking = self._state.effects, self._sleepers.waking
        if not waking:
            self._in, self._subnets, self._targets = {}, {}, {}
            return
        changed = effects.workers if self._targets else self._state.workers
        have_changed = [self._note(worker.name, _subnet(worker)) for worker in changed.values()]
        have_changed += [self._note(name, "") for name in effects.gone]
        if any(have_changed) or effects.rows(Sleeper) or not self._targets:
            self._targets = {}
            for one in waking:
                if one.wake:
                    target = WakeTarget(one.worker, one.wake.hardware_address, one.wake.subnet)
                    self._targets.setdefault(self.sender_for(one), []).append(target)

    def sender_for(self, sleeper: Sleeper) -> str:
        """Return the awake worker that sends the packets for this sleeper; empty if there is none.

        After each wake that fails another worker has its turn.
        """
        names = self._in.get(sleeper.wake.subnet) if sleeper.wake else None
        return names[sleeper.failed_wakes % len(names)] if names else ""

    def targets_of(self, worker: str) -> Sequence[WakeTarget]:
        """Return the sleepers that this awake worker must wake."""
        return self._targets.get(worker, ())

    def _note(self, name: str, subnet: str) -> bool:
        """Note an awake worker's subnet; empty: unknown, or it is not awake. False if nothing has changed."""
        before = self._subnets.pop(name, "")
        if subnet:
            self._subnets[name] = subnet
        if before == subnet:
            return False
        if before:
            self._in[before].remove(name)
        if subnet:
            insort(self._in.setdefault(subnet, []), name)
        return True


def _subnet(worker: Worker) -> str:
    is_awake = worker.session is not None and worker.reported
    return worker.facts.link.subnet if is_awake and worker.facts.link else ""
