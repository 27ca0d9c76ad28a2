"""The wing *shares*: users take turns by their use, within their limits. queues.py limits the queues at workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any

from loopline_master.core.events import ShareChanged
from loopline_master.core.kernel.door.mechanism import Ask, Handler, Purpose, Tell, Veto
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.effects import Declined, Done, Reply
from loopline_master.core.kernel.entities import Attempt, Job, SessionKey, Worker
from loopline_master.core.kernel.index.attempts import is_at_work, is_prefetched
from loopline_master.core.kernel.state import State
from loopline_master.core.kernel.stored_rows import Rows
from loopline_master.core.policies.policy import Placement, Proposal, View
from loopline_master.core.wings.shares import queues
from loopline_master.core.wings.shares.accounts import Accounts, in_hand_ms
from loopline_master.core.wings.shares.user import User
from loopline_master.core.wings.shares.user_slots import may_take, slots_of_task
from loopline_shared.errors import ExceededLimit

_LIMITED = (
    ("user_jobs", "unfinished jobs"),
    ("user_tasks", "unfinished tasks"),
    ("user_spec_bytes", "bytes of unfinished jobs' specs"),
)
"""Settings that limit each user's unfinished work, and the words for it."""
_NO_SLOTS = Veto("user_slots")


class Shares(Wing):
    """Awake while accounts are kept: there are several users, or each has a limit of slots."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._accounts, self.late = Accounts({}), queues.LateAttempts(state)
        state.keep(self._accounts)

    @property
    def is_awake(self) -> bool:
        return self._accounts.are_kept

    def entities(self) -> Mapping[type, Callable[[Any], None]]:
        return {User: self._note}

    def restore(self, rows: Rows) -> None:
        self._accounts.users |= {user.name: user for user in rows.of(User)}

    def handlers(self) -> Mapping[type, Handler]:
        return {ShareChanged: self._change_share}

    def _note(self, user: User) -> None:
        self._accounts.users[user.name] = user
        self.state.effects.note(user.name, user)

    # Users and their limits.

    def admit(self, owner: str, tasks: int, spec_bytes: int, session: SessionKey | None) -> Declined | None:
        """Return the refusal of a job that would exceed a limit of its user. All jobs of a session count as one."""
        jobs = 0 if session in self.state.index.users.sessions else 1
        settings, hint = self.state.settings, "wait until some have ended, or cancel some; an admin sets limits.{}"
        limits, asked = (settings.user_jobs, settings.user_tasks, settings.user_spec_bytes), (jobs, tasks, spec_bytes)
        of_user = self.state.index.users.of(owner)
        for (name, noun), used, more, allowed in zip(_LIMITED, of_user, asked, limits, strict=True):
            if allowed is not None and used + more > allowed:
                has = f"{owner} has {used:,} of the {allowed:,} {noun} that one user may have"
                quota = ExceededLimit(allowed, max(0, allowed - used), noun)
                return Declined(429, name, f"{has}; this would be {more:,} more", hint.format(name), quota)
        return None

    def enters(self, job: Job) -> None:
        self._account_of(job.owner)

    def _account_of(self, name: str) -> User:
        """Return a user's account; create it if missing."""
        if name not in self._accounts.users:
            self.state.put(User(name, usage_at=self.state.now))
            were_shared = self._accounts.are_shared
            self.settings_change()
            if self._accounts.are_shared and not were_shared:
                queues.cut_to_limit(self.state)
        return self._accounts.users[name]

    def _change_share(self, event: ShareChanged, tell: Tell) -> Reply:
        """Give a user another share, even if they have not submitted a job yet."""
        user = self._account_of(event.user)
        user.share = event.share
        self.state.put(user)
        return Done()

    def settings_change(self) -> None:
        """Keep accounts from now on if the settings demand it and there are several users or a limit of slots."""
        state, accounts, roles = self.state, self._accounts, self.state.index.attempts.roles
        accounts.half_life_s, accounts.gpu_cores = state.settings.share_half_life_s, state.settings.gpu_cores
        is_limited = state.settings.user_slots is not None
        accounts.are_kept = state.settings.shares and (len(accounts.users) > 1 or is_limited)
        under_way = ((state.jobs[one.job], one, roles.get(one.id, 0)) for one in state.attempts.values())
        state.put(*accounts.open(under_way, state.now))
        if accounts.are_shared:  # prefetched tasks of one user would delay those of the others
            state.prefetch_s = min(state.prefetch_s, state.settings.prefetch_s)
        self.late.restart(is_needed=accounts.are_shared)
        state.wings.arrange()

    # Turns.

    def in_turn(self, ask: Ask) -> Ask:
        return partial(in_turn, self.state, ask)

    def rank(self, owner: str) -> float:
        return self._accounts.rank(owner, self.state.now)

    def turn_passes(self, job: Job) -> None:
        """Note the user's job that had its turn."""
        user = self._accounts.users[job.owner]
        if user.pointer != job.turn:
            user.pointer = job.turn
            self.state.put(user)

    def veto(self, job: Job, task: int, worker: Worker, purpose: Purpose) -> Veto | None:
        if self.state.settings.user_slots is None:
            return None
        slots = slots_of_task(self.state, job, job.slots_on(worker))
        return None if may_take(self.state, job.owner, slots) else _NO_SLOTS

    def role_changes(self, attempt: Attempt, before: int, after: int) -> None:
        """Charge the attempt's user for its slots and GPUs."""
        job = self.state.jobs[attempt.job]
        if self._accounts.are_shared:
            self.late.note(attempt, after)
        if user := self._accounts.charge(job, attempt, before, after, self.state.now):
            self.state.put(user)

    # Queues at workers.

    def most_waiting(self, job: Job, worker: Worker) -> float:
        """Return the limit of the worker's queue including a task of this job, in tasks."""
        return queues.most_waiting(self.state, job, worker) if self._accounts.are_shared else inf

    def overtaken(self, worker: Worker) -> None:
        queues.cut_excess(self.state, worker)

    def due_at(self) -> float | None:
        return self.late.due_at

    def expire(self) -> None:
        self.late.expire()

    def workers_to_hear(self, now: float) -> Iterable[str]:
        """Return the workers whose last Reports show for how long the attempts that are due have run."""
        return self.late.workers(now)

    def place(self) -> Iterator[None]:
        if self._accounts.are_shared and self.state.index.attempts.queues.of_worker:
            yield from queues.make_way(self.state)

    def check(self, of: Job | Worker | None) -> None:
        """Raise AssertionError if a user's charges differ from their attempts."""
        if of is not None:
            return
        state, accounts, roles = self.state, self._accounts, self.state.index.attempts.roles
        at_work, charged, in_hand, ahead = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
        for attempt in state.attempts.values() if accounts.are_kept else ():
            job, role = state.jobs[attempt.job], roles.get(attempt.id, 0)
            owner = job.owner
            at_work[owner] += is_at_work(role) * attempt.slots
            charged[owner] += is_at_work(role) * (attempt.slots + accounts.slots_for_gpus(job))
            in_hand[owner] += in_hand_ms(attempt, role)
            ahead[owner] += is_prefetched(role) * attempt.slots
        for user in accounts.users.values():
            name, held = user.name, accounts.in_hand_ms.get(user.name, 0)
            assert user.at_work == at_work[name], f"{user} has {at_work[name]} slots at work"
            assert user.charged == charged[name], f"{user} must be charged for {charged[name]} slots"
            assert accounts.ahead.get(name, 0) == ahead[name], f"{name} has {ahead[name]} slots ahead"
            assert held == in_hand[name], f"{name} has {in_hand[name]} ms in hand, {held} are counted"


def in_turn(state: State, ask: Callable[[View], Iterator[Proposal]], view: View) -> Iterator[Proposal]:
    """Return the proposals of ``ask``, a policy's method: after each, the user who has used least is next.

    Each user's proposals are made by the policy while it sees this user's jobs alone (``Index.turn``). No task is
    prefetched to a busy worker while a user who comes earlier has tasks for it that are too long to wait there: short
    tasks would keep its slots busy for ever. A user at the limit of slots has no turn, and no other user waits for
    them.
    """
    owners = state.index.requirements.owners_in(state.index.open)
    if not owners or (len(owners) < 2 and state.settings.user_slots is None):
        yield from ask(view)
        return
    accounts = state.own(Accounts)
    index, grid, users, rank = state.index, state.grid, accounts.users, accounts.rank
    proposals, passed = {name: ask(view) for name in owners}, list[str]()
    queue = [(rank(name, state.now), name) for name in owners]
    heapify(queue)
    try:
        while queue:
            _, name = heappop(queue)
            if not may_take(state, name, 1):
                continue
            index.turn, grid.pointer, pointer = name, users[name].pointer, grid.pointer
            proposal = next(proposals[name], None)
            grid.pointer = pointer  # it changes only if the proposal spends its job's turn
            if proposal is None:
                passed.append(name)
                continue
            if not _is_allowed(state, proposal):
                continue
            if not isinstance(proposal, Placement) or not _passes(state, view, proposal.worker, passed):
                yield proposal
            heappush(queue, (rank(name, state.now), name))
    finally:
        index.turn = None


def _is_allowed(state: State, proposal: Proposal) -> bool:
    """True if its user may have the slots now; the first task that is too wide ends their turns in this step."""
    if not isinstance(proposal, Placement):
        return True
    job = state.jobs[proposal.job]
    return may_take(state, job.owner, slots_of_task(state, job))


def _passes(state: State, view: View, worker: str, passed: list[str]) -> bool:
    """True if the worker is busy, and one of these users has tasks to start there."""
    if not passed or view.is_free(state.workers[worker]):
        return False
    ready, served_by = state.index.ready, state.index.requirements.served_by
    return any(not ready.keys().isdisjoint(served_by(worker, name)) for name in passed)
