"""The doors of the worker's optional features: small, and each hook is of use to a feature of today."""

from __future__ import annotations

from inspect import isfunction

import pytest

from loopline_shared.model import AttemptId
from loopline_shared.protocol.gang_messages import GangPlace, MemberOrder, Word
from loopline_shared.protocol.worker_link import Assign, Run
from loopline_worker.attempts.agent_wing import AgentWing, AttemptPart
from loopline_worker.attempts.fence import Fence, FencedAttempt
from loopline_worker.attempts.start_gate import GangGates, StartGate
from loopline_worker.checkpoints.attempt_checkpoints import AttemptCheckpoints
from loopline_worker.checkpoints.checkpoint_wing import Checkpoints
from loopline_worker.core import instructions as do
from loopline_worker.core.events import Assigned
from loopline_worker.core.gang_members import GangMembers
from loopline_worker.core.gpu_tasks import GpuTasks
from loopline_worker.core.machine import Machine
from loopline_worker.core.machine_wing import MachineWing
from loopline_worker.core.sleep_rule import SleepRule
from loopline_worker.energy.energy_wing import Energy, EnergyPart
from loopline_worker.environments.environments import Environments, Provision
from loopline_worker.gpus.gpu_wing import GpuPart, Gpus
from loopline_worker.peers.peering import Peering
from loopline_worker.power.packet_sender import PacketSender
from loopline_worker.power.sleep_wing import SleepWing

WINGS: dict[type, tuple[type, ...]] = {
    AgentWing: (Environments, GangGates, Peering, Fence, Gpus, Checkpoints, PacketSender, SleepWing, Energy),
    AttemptPart: (Provision, StartGate, FencedAttempt, GpuPart, AttemptCheckpoints, EnergyPart),
    MachineWing: (GangMembers, GpuTasks, SleepRule),
}


def hooks(door: type) -> set[str]:
    return {name for name, value in vars(door).items() if isfunction(value) and not name.startswith("_")}


@pytest.mark.parametrize("door", WINGS, ids=lambda door: door.__name__)
def test_each_hook_is_overridden_by_a_wing(door: type) -> None:
    used = {name for wing in WINGS[door] for name in vars(wing)}
    assert hooks(door) - {"attach"} <= used


@pytest.mark.parametrize("door", WINGS, ids=lambda door: door.__name__)
def test_each_wing_overrides_a_hook(door: type) -> None:
    assert [wing for wing in WINGS[door] if not hooks(door) & set(vars(wing))] == []


def test_machine_without_wings_starts_every_attempt_itself() -> None:
    attempt = AttemptId(1, 1, 1)
    run = Run(attempt, ("work",), {}, {}, gang=GangPlace(1, ("a", "b"), wait_s=30.0))
    machine = Machine(1)
    steps = machine.step([Assigned(Assign(1, 1, (run,), words=(Word(attempt, MemberOrder.FREEZE),)))], 0.0)
    assert steps.todo == [do.Start(run, 1)]
