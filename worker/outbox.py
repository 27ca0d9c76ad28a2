"""Results on their way out: to disk, their long output to the master, then to whoever reports them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shared.model import Result
from worker.crew import Crew
from worker.spool import Spool
from worker.uploads import Uploads

log = logging.getLogger(__name__)

_RETRY_S = 2.0


class Outbox:
    """Hands every result to ``on_ready`` as soon as it may be sent."""

    def __init__(
        self,
        spool: Spool,
        uploads: Uploads,
        crew: Crew,
        on_ready: Callable[[Result], None],
        on_trouble: Callable[[str], None],
    ) -> None:
        self._spool = spool
        self._uploads = uploads
        self._crew = crew
        self._on_ready = on_ready
        self._on_trouble = on_trouble

    def restore(self) -> tuple[list[Result], list[Result]]:
        """What an earlier agent left: results that may be sent, and those that are still on their way."""
        results = self._spool.load()
        if results:
            log.info("%d results of an earlier run wait for the master", len(results))
        unready = [result for result in results if _names_blobs(result)]
        for result in unready:
            self._crew.start(self._deliver(result))
        return [result for result in results if not _names_blobs(result)], unready

    async def take(self, result: Result) -> None:
        """On return it is on disk."""
        await self._put(result)
        if _names_blobs(result):
            self._crew.start(self._deliver(result))
        else:
            self._on_ready(result)

    async def _put(self, result: Result) -> None:
        """Until the disk takes it: what is not on disk is not sent."""
        while True:
            try:
                await self._spool.put(result)
                return
            except OSError as error:
                self._on_trouble(f"cannot write a result: {error}")
                await asyncio.sleep(_RETRY_S)

    async def _deliver(self, result: Result) -> None:
        files, value_file = self._spool.output_files(result.attempt), self._spool.value_file(result.attempt)
        delivered = await self._uploads.deliver(result, files, value_file, self._spool.files_folder(result.attempt))
        if delivered != result:
            await self._put(delivered)
        self._on_ready(delivered)


def _names_blobs(result: Result) -> bool:
    value = result.value
    return bool(result.stdout.sha256 or result.stderr.sha256 or result.outputs or (value and value.sha256))
