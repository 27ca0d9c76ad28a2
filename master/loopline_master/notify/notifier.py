"""Sends the notifications in the outbox: each when it is due, and again at growing intervals until it succeeds."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from loopline_master.commands import command
from loopline_master.core.wings.gangs.planning.plan import BROKEN
from loopline_master.notify.webhook import NO_ANSWER, REFUSED, Webhooks
from loopline_master.store import Store
from loopline_master.store.records import Due, NotificationKey
from loopline_master.timings import NOTIFY_FIRST_PAUSE_S, NOTIFY_LONGEST_PAUSE_S, NOTIFY_LOOK_EVERY_S, NOTIFY_TRIES
from loopline_shared.errors import LooplineError
from loopline_shared.rest.bodies import JobView

log = logging.getLogger(__name__)

LOOK_AT, LOOK_AT_USER = 256, 32
"""Due notifications that are read at a time, in all and of one user."""
GIVE_UP_AFTER_S = 86400.0
"""A notification that is older, and fails, is not sent again."""
_NOTHING_DUE_S = 3600.0


class Notifier:
    """Sends notifications that are due: a few at once, of each user and to each receiver."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        *,
        webhooks: Webhooks,
        commands: dict[str, list[str]],
    ) -> None:
        self._store, self._clock = store, clock
        self._webhooks = webhooks
        self._commands = commands
        self._places = SendingPlaces()
        self._sending: set[NotificationKey] = set()
        self._waiting: list[Due] = []  # due, and without a place when they were read

    async def run(self) -> None:
        """Send notifications until cancelled. After an error it can be called again."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._store.notifications.came.clear()
                    is_all = await self._read_due()
                    self._start(group)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(await self._pause_s() if is_all else 0.0):
                            await self._store.notifications.came.wait()
                    await asyncio.sleep(NOTIFY_LOOK_EVERY_S)
        finally:
            await self._webhooks.close()

    async def _read_due(self) -> bool:
        """Read what is due, and postpone what goes to a receiver that rests. False if there may be more."""
        now, outbox = self._clock(), self._store.notifications
        self._waiting = []  # else a place given back during the read may start a notification a second time
        found = await outbox.due(now, LOOK_AT, LOOK_AT_USER, self._sending)
        resting: dict[float, list[Due]] = {}
        waiting, too_old = list[Due](), list[Due]()
        for due in found:
            until = self._places.rests_until(_receiver(due), now)
            if until is None:
                waiting.append(due)
            elif now < due.at + GIVE_UP_AFTER_S:
                resting.setdefault(until, []).append(due)
            else:
                too_old.append(due)
        self._waiting = waiting
        for until, those in resting.items():
            await outbox.postpone(those, until)
        if too_old:
            await outbox.give_up(too_old, "its receiver has given no answer for a day")
        return len(waiting) == len(found)

    def _start(self, group: asyncio.TaskGroup) -> None:
        """Send what has a place now. What is left gets its turn when a place is given back."""
        left = []
        for due in self._waiting:
            if self._places.rests_until(_receiver(due), self._clock()) or not self._places.occupy(
                _receiver(due), due.owner
            ):
                left.append(due)
                continue
            self._sending.add(due.key)
            group.create_task(self._send_in_turn(due, group))
        self._waiting = left

    async def _send_in_turn(self, due: Due, group: asyncio.TaskGroup) -> None:
        try:
            await self._send(due)
        finally:
            self._sending.discard(due.key)
            self._places.give_back(_receiver(due), due.owner)
        self._start(group)
        self._store.notifications.came.set()

    async def _pause_s(self) -> float:
        """Return the time until the next one is due. (One that is due waits for a place, which wakes us.)"""
        next_at = await self._store.notifications.next_after(self._clock())
        return _NOTHING_DUE_S if next_at is None else max(0.0, next_at - self._clock())

    async def _send(self, due: Due) -> None:
        message_id = f"job_{due.job}_{due.departure}"
        try:
            job = await self._job(due)
            body = _body(due, job)
            if due.notify.webhook is not None:
                await self._webhooks.send(due.notify.webhook, message_id, body, job.user)
            else:
                await command.run(self._command(due.notify.command or ""), body, LOOPLINE_MESSAGE=message_id)
        except LooplineError as error:
            if error.code == NO_ANSWER:
                self._places.note_silence(_receiver(due), self._clock())
            elif error.code == REFUSED:
                self._places.note_answer(_receiver(due))
            again = due.tries + 1 < NOTIFY_TRIES and self._clock() < due.at + GIVE_UP_AFTER_S
            pause_s = min(NOTIFY_LONGEST_PAUSE_S, NOTIFY_FIRST_PAUSE_S * 2.0**due.tries)
            await self._store.notifications.failed(due, error.message, self._clock() + pause_s if again else None)
            log.warning("job %s: its owner could not be notified: %s", due.job, error.message)
        else:
            self._places.note_answer(_receiver(due))
            await self._store.notifications.delivered(due, self._clock())

    async def _job(self, due: Due) -> JobView:
        job = await (self._store.jobs.detail if due.state == BROKEN else self._store.jobs.view)(due.job)
        if job is None:
            raise LooplineError("notify", "the job is gone")
        return job

    def _command(self, name: str) -> list[str]:
        if name not in self._commands:
            raise LooplineError("notify", f"this master has no command {name} any more")
        return self._commands[name]


def _body(due: Due, job: JobView) -> str:
    at = datetime.fromtimestamp(due.at, UTC).isoformat()
    message = {"type": f"job.{due.state}", "timestamp": at, "data": job.model_dump(mode="json")}
    return json.dumps(message, separators=(",", ":"))


def _receiver(due: Due) -> str:
    """Return the receiver's name as the user wrote it, which need not be a valid URL."""
    webhook = due.notify.webhook
    return f"command {due.notify.command}" if webhook is None else webhook.split("/")[2]


AT_ONCE, AT_ONCE_EACH, AT_ONCE_USER, AT_ONCE_USER_EACH = 32, 4, 4, 2
"""Notifications at once: in all, to one receiver, of one user, and of one user to one receiver."""
FIRST_REST_S, LONGEST_REST_S = 10.0, 3600.0


@dataclass(slots=True)
class Rest:
    """The rest of a receiver."""

    until: float
    length_s: float


class SendingPlaces:
    """Counts what is being sent, and knows which receivers rest."""

    def __init__(self) -> None:
        self._all = 0
        self._to, self._of = Counter[str](), Counter[str]()
        self._between = Counter[tuple[str, str]]()
        self._rests: dict[str, Rest] = {}

    def rests_until(self, receiver: str, now: float) -> float | None:
        """Return when the receiver's rest is over; None if it does not rest."""
        rest = self._rests.get(receiver)
        return rest.until if rest is not None and rest.until > now else None

    def occupy(self, receiver: str, user: str) -> bool:
        """Take a place; False if there is none for this receiver and user."""
        most = 1 if receiver in self._rests else AT_ONCE_EACH
        if (
            self._all >= AT_ONCE
            or self._to[receiver] >= most
            or self._of[user] >= AT_ONCE_USER
            or self._between[user, receiver] >= AT_ONCE_USER_EACH
        ):
            return False
        self._count(receiver, user, 1)
        return True

    def give_back(self, receiver: str, user: str) -> None:
        """Give a place back."""
        self._count(receiver, user, -1)
        self._to, self._of, self._between = +self._to, +self._of, +self._between  # without zeros

    def _count(self, receiver: str, user: str, change: int) -> None:
        self._all += change
        self._to[receiver] += change
        self._of[user] += change
        self._between[user, receiver] += change

    def note_answer(self, receiver: str) -> None:
        """Note that the receiver answers, with any status."""
        self._rests.pop(receiver, None)

    def note_silence(self, receiver: str, now: float) -> None:
        """Note that the receiver gave no answer in time. Several at once count as one."""
        rest = self._rests.get(receiver)
        if rest is not None and rest.until > now:
            return
        length_s = FIRST_REST_S if rest is None else min(2 * rest.length_s, LONGEST_REST_S)
        self._rests[receiver] = Rest(now + length_s, length_s)
