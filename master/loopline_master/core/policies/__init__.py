"""The policies: which task goes to which worker next.

**Whose turn.** In each step the scheduler applies its events and then asks the policy in force for proposals: an
attempt at this task on this worker (``Placement``). Each is accepted or refused before the next is drawn, so the
``View`` always shows the result. A policy only orders proposals.

**Two kinds, one method each.** A ``WorkerFirst`` policy answers a free worker that asks for a task:
``next_task(view, worker)``. A ``TaskFirst`` policy answers a task that asks for a worker, in the order of the jobs'
arrival: ``cost(view, task, candidate)``, and the least cost wins. Choose the first where jobs share workers (whose
turn is it?), the second where workers differ and the question is which one suits the task.

**What the scheduler checks.** The task must be in its job's ready set (fresh, to retry, or allowed a replica), within
the replica limit and the budget. The worker must be eligible (it meets the requirements, is not draining or in
quarantine), have the slots, and have no other attempt of the task. The hold, which keeps jobs in order, is not the
policy's: the last task of a job may be proposed at any time, and while it is held that only spends the job's turn. So
a policy may be slow or unfair, but it breaks no promise. If it leaves a whole grid idle, the scheduler starts one
task itself, unless the policy asked to wait.

**Prefetching.** Short tasks are sent to wait at workers whose slots are all busy, so that they begin without a round
trip. The same method chooses them: ``next_task`` is asked for the busy worker too, ``cost`` for busy candidates
beside free ones. The scheduler accepts only tasks to start, with one slot, known to be short, within ``prefetch_s``
of work for each slot (``loopline_master.core.kernel.eligibility``).

**Requirement class and worker class.** Jobs with equal requirements are one ``RequirementClass``: it is matched
against workers once, not job by job. Workers with equal facts and about the same speed are one ``WorkerClass``. A
TaskFirst policy ranks the workers of a class (``rank``), so that only the best of each class is priced, and a
decision costs a logarithm of the number of workers.

**Nothing now.** ``Later(at)`` instead of a placement asks again at that time (``Scheduler.wake_at``): a worker waits
for a cheaper hour, a task for a slot near its data.

**Shares of users.** Whose turn it is among users is decided before the policy is asked
(``loopline_master.core.wings.shares``). Then it sees the jobs of one user at a time: each requirement class belongs
to one user.

**Data.** The time that a candidate needs to fetch missing inputs is a term of ``cost``, in the same seconds. A
proposal of a WorkerFirst policy may be changed to another task of the same job whose files are at the worker
(``Placement.keeps_place``).

**Where more would go.** *Gangs*: a task that needs N workers at once asks as a third kind beside these two, and
``Placement`` names them all, to be accepted all or none.

One file in this package adds a policy: its decorator ``register(name)`` enters it, and every module here is imported.
``field/`` has policies of the literature, for comparison only (``COMPARED``).
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from loopline_master.core.policies.policy import (
    COMPARED,
    REGISTRY,
    Later,
    Placement,
    Policy,
    WorkerFirst,
    policy_named,
    register,
)
from loopline_master.core.policies.task_first import TaskFirst

__all__ = [
    "COMPARED",
    "REGISTRY",
    "Later",
    "Placement",
    "Policy",
    "TaskFirst",
    "WorkerFirst",
    "policy_named",
    "register",
]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
