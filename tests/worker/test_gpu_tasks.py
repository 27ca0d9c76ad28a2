"""Tasks with GPUs at their worker's machine: preempted for the owner, or because a GPU failed."""

from __future__ import annotations

import math

from loopline_shared.model import AttemptId, Outcome
from loopline_worker.core.events import FreezeCompleted, OwnerObserved
from loopline_worker.core.gpu_tasks import CheckedGpu, GpuTasks
from loopline_worker.core.instructions import Instructions, Kill
from loopline_worker.core.owner_policy import OwnerPreferences, Policy, Signs
from loopline_worker.core.transitions import State
from tests.worker.worker_machine import A, B, C, Driver, assigned, frozen, thawed

TERMS = OwnerPreferences(Policy.SPARE, reserve_cores=0.0, reserve_memory_bytes=0)


def running(*attempts: AttemptId) -> Driver:
    machine = Driver(2, TERMS, 600.0, (GpuTasks,))
    looks(machine, spare=2)
    machine.happens(assigned(*attempts))
    return machine


def looks(machine: Driver, spare: float) -> Instructions:
    signs = Signs(2, spare, idle_s=math.inf, memory_available_bytes=100)
    return machine.happens(OwnerObserved(signs, 0.0))


def test_attempt_is_given_back_if_it_must_leave_its_gpu() -> None:
    machine = running(A, B)
    assert machine.happens(CheckedGpu(A, "", 60.0)).todo == []
    steps = machine.happens(CheckedGpu(A, "GPU 0: another program uses it", 60.0))
    assert steps.todo == [Kill(A, Outcome.GIVEN_BACK, "GPU 0: another program uses it")]
    assert machine.happens(CheckedGpu(A, "GPU 0: another program uses it", 60.0)).todo == [], "it is ending"
    assert machine.state(B) is State.RUNNING


def test_frozen_attempt_leaves_its_gpu_after_a_short_time() -> None:
    machine = running(A, B)
    assert frozen(looks(machine, spare=0)) == [A, B]
    machine.happens(FreezeCompleted(A), FreezeCompleted(B))
    assert machine.happens(CheckedGpu(A, "", 60.0), after_s=59.0).todo == []
    (kill,) = machine.happens(CheckedGpu(A, "", 60.0), after_s=1.0).todo
    assert isinstance(kill, Kill)
    assert (kill.attempt, kill.outcome) == (A, Outcome.GIVEN_BACK)
    assert "memory on the GPU" in kill.reason
    (kill,) = machine.happens(CheckedGpu(B, "", 0.0)).todo
    assert isinstance(kill, Kill)
    assert kill.attempt == B, "little memory is free"


def test_attempt_without_processes_stays() -> None:
    machine = running(A)
    machine.happens(assigned(B, C))
    assert machine.state(C) is State.WAITING
    for attempt in (C, AttemptId(9, 9, 9)):
        assert machine.happens(CheckedGpu(attempt, "it failed", 0.0)).todo == []
    assert thawed(looks(machine, spare=2)) == []
