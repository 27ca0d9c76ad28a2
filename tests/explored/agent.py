"""A worker's agent for the explorer: an immutable value, so that branches of the exploration can share it.

It keeps to the rules of the worker's machine (worker/loopline_worker/core/machine.py): results are sent again in each
session until an Assign acknowledges them, attempts that wait begin only once the master has answered a Report of this
session, and a reboot gives back what had begun. Frames to the master arrive at once, frames to the agent when the
explorer delivers them: as the frames of one direction stay in order, a delay upwards looks the same to both sides as
one downwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from loopline_shared.model import AttemptId, Facts, Held, Load, Outcome, Result
from loopline_shared.protocol.attempt_ranges import ranges_of
from loopline_shared.protocol.gang_messages import Member, MemberOrder, Word
from loopline_shared.protocol.worker_link import Assign, Report, Run

UNSENT = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """A result that the master has not acknowledged. ``report``: the last Report with it in this session."""

    attempt: AttemptId
    outcome: Outcome
    report: int = UNSENT


@dataclass(frozen=True, slots=True)
class Agent:
    """One worker. Its processes are the attempts that have begun."""

    name: str
    facts: Facts
    session: int = 0  # its open link; 0: none
    reports: int = 0  # sent in this session
    seen: int = 0  # number of the last Assign carried out
    mail: tuple[Assign, ...] = ()  # under way to it
    held: tuple[AttemptId, ...] = ()  # in order of arrival
    begun: frozenset[AttemptId] = frozenset()
    members: tuple[AttemptId, ...] = ()  # of gangs, prepared: they wait for the word to start
    frozen: frozenset[AttemptId] = frozenset()  # at the master's word
    ended: tuple[Ended, ...] = ()
    is_doubtful: bool = False  # no Report of this session was answered: nothing begins
    owes_report: bool = False
    boots: int = 0

    @property
    def has_news(self) -> bool:
        """True if the agent would send a Report now."""
        if not self.session:
            return False
        return not self.reports or self.owes_report or any(one.report == UNSENT for one in self.ended)

    @property
    def is_busy(self) -> bool:
        """True if more is to be said on its link, or at its gangs."""
        return not self.reports or bool(self.mail or self.has_news or self.members or self.frozen)

    def connected(self, session: int) -> Agent:
        """Return the agent with a new link."""
        return replace(self.cut(), session=session)

    def cut(self) -> Agent:
        """Return the agent without a link: the frames under way, and its latest Reports, may be lost."""
        ended = tuple(replace(one, report=UNSENT) for one in self.ended)
        return Agent(
            self.name, self.facts, held=self.held, begun=self.begun, members=self.members, frozen=self.frozen,
            ended=ended, is_doubtful=True, boots=self.boots,
        )  # fmt: skip

    def rebooted(self) -> Agent:
        """Return the agent after a restart of its computer: begun attempts are given back, others wait again."""
        gone = tuple(Ended(one, Outcome.GIVEN_BACK) for one in self.held if one in self.begun)
        waiting = tuple(one for one in self.held if one not in self.begun) + self.members
        cleared = replace(self, held=waiting, begun=frozenset(), members=(), frozen=frozenset(), is_doubtful=True)
        return replace(cleared, ended=self.ended + gone, boots=self.boots + 1)

    def finished(self, attempt: AttemptId, outcome: Outcome) -> Agent:
        """Return the agent after the end of a process."""
        return self._without(attempt, outcome)._begin()

    def report(self) -> tuple[Agent, Report]:
        """Return the next Report, and the agent after it."""
        number = self.reports + 1
        said = Report(
            number,
            self.seen,
            tuple(Held(one, frozen=one in self.frozen) for one in self.held if one in self.begun),
            tuple(
                Result(one.attempt, one.outcome, 0 if one.outcome is Outcome.SUCCEEDED else 1)
                for one in self.ended
                if one.report == UNSENT
            ),
            Load(self.facts.slots, spare_cpu=float(self.facts.slots)),
            waiting=ranges_of(one for one in self.held if one not in self.begun),
            members=tuple(Member(one, is_ready=True, port=4000) for one in self.members),
        )
        ended = tuple(replace(one, report=one.report or number) for one in self.ended)
        return replace(self, reports=number, ended=ended, owes_report=False), said

    def posted(self, assign: Assign, *, is_safe: bool) -> Agent:
        """Return the agent with one more frame under way to it. ``is_safe``: no frame can be lost any more.

        A frame arrives at once if the agent can do nothing of its own before.
        """
        agent = replace(self, mail=(*self.mail, assign))
        is_waited_for = self.is_doubtful and len(self.held) > len(self.begun)
        if self.mail or assign.cancel or assign.words or is_waited_for:
            return agent
        if assign.run:
            arrives = is_safe and not self.begun and not self.members and not self.has_news
        else:
            arrives = is_safe or not self.ended
        return agent.delivered()[0] if arrives else agent

    def delivered(self) -> tuple[Agent, list[Ended]]:
        """Carry out the oldest frame under way; return the results that were forgotten, too."""
        assign, known = self.mail[0], {*self.held, *self.members, *(one.attempt for one in self.ended)}
        forgotten = [one for one in self.ended if UNSENT < one.report <= assign.seen]
        agent = replace(
            self,
            mail=self.mail[1:],
            seen=assign.seq,
            ended=tuple(one for one in self.ended if one not in forgotten),
            is_doubtful=self.is_doubtful and not assign.seen,
        )
        for one in assign.cancel:
            agent = agent._without(one, Outcome.CANCELLED)
        fresh = [run for run in assign.run if run.attempt not in known and run.attempt not in assign.cancel]
        for run in fresh:
            agent = agent._queued(run)
        for word in assign.words:
            agent = agent._obeyed(word)
        owes = agent.owes_report or bool(fresh or assign.cancel or assign.words)
        return replace(agent, owes_report=owes)._begin(), forgotten

    def _queued(self, run: Run) -> Agent:
        """Return the agent with an attempt more. A gang's member without a slot stands down."""
        if run.gang is None:
            return replace(self, held=(*self.held, run.attempt))
        if self._free <= 0:
            return replace(self, ended=(*self.ended, Ended(run.attempt, Outcome.GIVEN_BACK)))
        return replace(self, members=(*self.members, run.attempt))

    def _obeyed(self, word: Word) -> Agent:
        attempt = word.attempt
        match word.order:
            case MemberOrder.START if attempt in self.members:
                members = tuple(one for one in self.members if one != attempt)
                return replace(self, members=members, held=(*self.held, attempt), begun=self.begun | {attempt})
            case MemberOrder.FREEZE if attempt in self.begun:
                return replace(self, frozen=self.frozen | {attempt})
            case MemberOrder.THAW:
                return replace(self, frozen=self.frozen - {attempt})
        return self

    def _without(self, attempt: AttemptId, outcome: Outcome) -> Agent:
        """Return the agent once an attempt has ended here; unchanged if it does not have it."""
        if attempt not in self.held and attempt not in self.members:
            return self
        return replace(
            self,
            held=tuple(one for one in self.held if one != attempt),
            members=tuple(one for one in self.members if one != attempt),
            begun=self.begun - {attempt},
            frozen=self.frozen - {attempt},
            ended=(*self.ended, Ended(attempt, outcome)),
        )

    @property
    def _free(self) -> int:
        return self.facts.slots - len(self.begun) - len(self.members)

    def _begin(self) -> Agent:
        """Return the agent with its waiting attempts begun, as far as slots are free."""
        waiting = [one for one in self.held if one not in self.begun]
        if self.is_doubtful or not waiting or self._free <= 0:
            return self
        return replace(self, begun=self.begun.union(waiting[: self._free]))
