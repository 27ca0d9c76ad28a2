"""Sends the notifications in the outbox: each when it is due, and again at growing intervals until it succeeds."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from weakref import WeakValueDictionary

from loopline_master.core.planning.plan import BROKEN
from loopline_master.notify import command
from loopline_master.notify.webhook import Webhooks
from loopline_master.store import Store
from loopline_master.store.records import Due, NotificationKey
from loopline_master.timings import NOTIFY_FIRST_PAUSE_S, NOTIFY_LONGEST_PAUSE_S, NOTIFY_LOOK_EVERY_S, NOTIFY_TRIES
from loopline_shared.errors import LooplineError
from loopline_shared.rest.bodies import JobView

log = logging.getLogger(__name__)

AT_ONCE = 8
AT_ONCE_EACH = 2  # to one receiver: a slow one delays no other
MOST_IN_HAND = 64
_NOTHING_DUE_S = 3600.0


class Notifier:
    """Sends notifications that are due; few at once, and fewer still to one receiver."""

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
        self._in_hand: set[NotificationKey] = set()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._per_receiver: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # by receiver

    async def run(self) -> None:
        """Send notifications until cancelled. After an error it can be called again."""
        self._in_hand.clear()
        try:
            async with asyncio.TaskGroup() as sending:
                while True:
                    self._store.notifications.came.clear()
                    for due in await self._due_now():
                        self._in_hand.add(due.key)
                        sending.create_task(self._send_in_turn(due))
                    with suppress(TimeoutError):
                        async with asyncio.timeout(await self._pause_s()):
                            await self._store.notifications.came.wait()
                    await asyncio.sleep(NOTIFY_LOOK_EVERY_S)
        finally:
            await self._webhooks.close()

    async def _due_now(self) -> list[Due]:
        room = MOST_IN_HAND - len(self._in_hand)
        return await self._store.notifications.due(self._clock(), room, self._in_hand) if room else []

    async def _send_in_turn(self, due: Due) -> None:
        receiver = self._per_receiver.setdefault(_receiver(due), asyncio.Semaphore(AT_ONCE_EACH))
        try:
            async with receiver, self._at_once:
                await self._send(due)
        finally:
            self._in_hand.discard(due.key)

    async def _pause_s(self) -> float:
        """Return the time to wait. It is 0 while some are being sent: they may soon be due again."""
        if self._in_hand:
            return 0.0
        next_at = await self._store.notifications.next_at()
        return _NOTHING_DUE_S if next_at is None else max(0.0, next_at - self._clock())

    async def _send(self, due: Due) -> None:
        message_id = f"job_{due.job}_{due.departure}"
        try:
            job = await self._job(due)
            body = _body(due, job)
            if due.notify.webhook is not None:
                await self._webhooks.send(due.notify.webhook, message_id, body, job.owner)
            else:
                await command.run(self._command(due.notify.command or ""), message_id, body)
        except LooplineError as error:
            again = due.tries + 1 < NOTIFY_TRIES
            pause_s = min(NOTIFY_LONGEST_PAUSE_S, NOTIFY_FIRST_PAUSE_S * 2.0**due.tries)
            await self._store.notifications.failed(due, error.message, self._clock() + pause_s if again else None)
            log.warning("job %s: its owner could not be notified: %s", due.job, error.message)
        else:
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
