"""Results of attempts: from an attempt's end until the master has its result on disk, and the attempt is forgotten.

A result of another life of the master's database is forgotten at once: there it could be taken for that of another
attempt of the same name.
"""

from __future__ import annotations

from loopline_shared.model import Result
from loopline_worker.core import events as on
from loopline_worker.core.attempts import AttemptRecord, Attempts, names_files
from loopline_worker.core.instructions import Deliver, Instructions, Log
from loopline_worker.core.transitions import State


class KeptResults:
    """Follows the results. Its only state is the life to which all that is here belongs."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self.life = ""  # of the master's database; empty: not known

    def keep(self, attempt: AttemptRecord, result: Result, steps: Instructions) -> None:
        """Give an attempt its result, which may be sent unless it names files."""
        attempt.result = result
        is_wanted = attempt.id not in self._attempts.disowned
        state = State.DELIVERING if names_files(result) and is_wanted else State.UNSENT
        if attempt.id in self._attempts:
            self._attempts.move(attempt, state)
        else:
            attempt.state = state
            self._attempts.add(attempt)
        if state is State.DELIVERING:
            steps.todo.append(Deliver(result))

    def delivered(self, result: Result) -> None:
        """Let a result be sent: it is on disk, and the master has its files."""
        attempt = self._attempts.delivering.get(result.attempt)
        if attempt:
            attempt.result = result
            self._attempts.move(attempt, State.UNSENT)

    def deliver_again(self, event: on.WriteFailed, steps: Instructions) -> None:
        """Have results delivered that the journal did not take."""
        for attempt_id in event.results:
            attempt = self._attempts.unsent.get(attempt_id)
            if attempt and attempt.result:
                self._attempts.move(attempt, State.DELIVERING)
                steps.todo.append(Deliver(attempt.result))

    def sent(self, event: on.Reported) -> None:
        """Note which results left with a Report."""
        for result in event.results:
            attempt = self._attempts.unsent.get(result.attempt)
            if attempt:
                attempt.report = event.seq
                self._attempts.move(attempt, State.SENT)

    def send_again(self) -> None:
        """Have every result sent again, the oldest first: Reports of earlier sessions may be lost."""
        newer = list(self._attempts.unsent.values())
        for attempt in list(self._attempts.sent.values()):
            self._attempts.move(attempt, State.UNSENT)
        for attempt in newer:
            self._attempts.unsent[attempt.id] = self._attempts.unsent.pop(attempt.id)

    def acknowledged(self, seen: int, steps: Instructions) -> None:
        """Forget the results that were in Reports up to this one: those that were sent first."""
        for attempt in list(self._attempts.sent.values()):
            if attempt.report > seen:
                return
            self._attempts.forget(attempt)
            steps.journal.over.append(attempt.id)

    def begin_life(self, life: str, steps: Instructions) -> bool:
        """Note the master's life. Return True if the results kept here are of another one: they are disowned."""
        if life == self.life:
            return False
        is_another, self.life, steps.journal.life = bool(self.life), life, life
        if not (is_another and len(self._attempts)):
            return False
        strangers = self._attempts.disown()
        steps.journal.over += strangers
        text = f"the master's database was restored, or is another one: what it gave before ends ({len(strangers)})"
        steps.todo.append(Log(text, is_warning=True))
        return True
