"""Results of attempts: from an attempt's end until the master has its result on disk, and the attempt is forgotten.

A result of another life of the master's database is forgotten at once: another attempt may have the same id now.
"""

from __future__ import annotations

from loopline_shared.model import Result
from loopline_worker.core import events as on
from loopline_worker.core.attempts import AttemptRecord, Attempts, names_files
from loopline_worker.core.instructions import Deliver, Instructions, Log
from loopline_worker.core.transitions import State


class KeptResults:
    """Follows the results. Its only state is the life of the master's database that they come from."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self.life = ""  # of the master's database; empty: not known

    def keep(self, attempt: AttemptRecord, result: Result, steps: Instructions) -> None:
        """Give an attempt its result, ready to be sent unless it names files."""
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
        """Mark a result ready to be sent: it is on disk, and the master has its files."""
        attempt = self._attempts.delivering.get(result.attempt)
        if attempt:
            attempt.result = result
            self._attempts.move(attempt, State.UNSENT)

    def deliver_again(self, event: on.WriteFailed, steps: Instructions) -> None:
        """Deliver the results that the journal did not take once more."""
        for attempt_id in event.results:
            attempt = self._attempts.unsent.get(attempt_id)
            if attempt and attempt.result:
                self._attempts.move(attempt, State.DELIVERING)
                steps.todo.append(Deliver(attempt.result))

    def sent(self, event: on.Reported) -> None:
        """Mark the results that left with a Report as sent."""
        for result in event.results:
            attempt = self._attempts.unsent.get(result.attempt)
            if attempt:
                attempt.report = event.seq
                self._attempts.move(attempt, State.SENT)

    def send_again(self) -> None:
        """Mark every result unsent, oldest first: Reports of earlier sessions may be lost."""
        newer = list(self._attempts.unsent.values())
        for attempt in list(self._attempts.sent.values()):
            self._attempts.move(attempt, State.UNSENT)
        for attempt in newer:
            self._attempts.unsent[attempt.id] = self._attempts.unsent.pop(attempt.id)

    def acknowledged(self, seen: int, steps: Instructions) -> None:
        """Forget the results sent in Reports up to number ``seen``."""
        for attempt in list(self._attempts.sent.values()):
            if attempt.report > seen:
                return
            self._attempts.forget(attempt)
            steps.journal.over.append(attempt.id)

    def begin_life(self, life: str, steps: Instructions) -> bool:
        """Set the life of the master's database. Return True if attempts here come from another one: disown them."""
        if life == self.life:
            return False
        is_another, self.life, steps.journal.life = bool(self.life), life, life
        if not (is_another and len(self._attempts)):
            return False
        disowned = self._attempts.disown()
        steps.journal.over += disowned
        text = f"the master's database was restored or replaced: ending {len(disowned)} attempts of the earlier one"
        steps.todo.append(Log(text, is_warning=True))
        return True
