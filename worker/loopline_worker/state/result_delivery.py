"""Results on their way out: to disk, their long output to the master, then to whoever reports them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from loopline_shared.model import AttemptId, Result
from loopline_worker.files.uploads import Uploads
from loopline_worker.state.journal import Ledger
from loopline_worker.state.spool import Spool, names_files
from loopline_worker.task_group import Crew

log = logging.getLogger(__name__)

_RETRY_S = 2.0


class Outbox:
    """Hands every result that may not be sent at once to ``on_ready`` as soon as it may."""

    def __init__(
        self,
        ledger: Ledger,
        spool: Spool,
        uploads: Uploads,
        crew: Crew,
        on_ready: Callable[[Result], None],
        on_trouble: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._spool = spool
        self._uploads = uploads
        self._crew = crew
        self._on_ready = on_ready
        self._on_trouble = on_trouble

    def restore(self) -> tuple[list[Result], list[Result]]:
        """What an earlier agent left: results that may be sent, and those that are still on their way."""
        results = self._ledger.results
        self._spool.clear(results)
        if results:
            log.info("%d results of an earlier run wait for the master", len(results))
        unready = [result for result in results if names_files(result)]
        for result in unready:
            self._crew.start(self._deliver(result))
        return [result for result in results if not names_files(result)], unready

    def take(self, results: Sequence[Result], began: Sequence[AttemptId] = ()) -> list[Result]:
        """To disk, with what begins in their place; what is not there is not sent. Those that may be sent at once."""
        if self._write(results, began):
            return self._pass_on(results)
        self._crew.start(self._take_late(results))
        return []

    async def _take_late(self, results: Sequence[Result]) -> None:
        await self._insist(results)
        for result in self._pass_on(results):
            self._on_ready(result)

    async def _insist(self, results: Sequence[Result]) -> None:
        """Until the disk takes them."""
        while True:
            await asyncio.sleep(_RETRY_S)
            if self._write(results):
                return

    def _write(self, results: Sequence[Result], began: Sequence[AttemptId] = ()) -> bool:
        """Whether the disk took them."""
        try:
            self._ledger.write(results=results, began=began)
        except OSError as error:
            self._on_trouble(f"cannot write a result: {error}")
            return False
        return True

    def _pass_on(self, results: Iterable[Result]) -> list[Result]:
        """Those that need not be delivered first."""
        ready = []
        for result in results:
            self._spool.keep(result)
            if names_files(result):
                self._crew.start(self._deliver(result))
            else:
                ready.append(result)
        return ready

    async def _deliver(self, result: Result) -> None:
        files, value_file = self._spool.output_files(result.attempt), self._spool.value_file(result.attempt)
        delivered = await self._uploads.deliver(result, files, value_file, self._spool.files_folder(result.attempt))
        if delivered != result and not self._write([delivered]):
            await self._insist([delivered])
        self._on_ready(delivered)
