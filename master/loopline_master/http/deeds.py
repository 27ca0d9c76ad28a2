"""Notes in the audit log of what requests changed: who asked for it, and from where."""

from __future__ import annotations

import time
from collections.abc import Mapping

from aiohttp import web

from loopline_master.http.auth import Caller
from loopline_master.settings import MasterSettings
from loopline_master.store import Store
from loopline_master.store.queries.audit_log import Deed

_CUT = 200


class Deeds:
    """Notes deeds in the audit log."""

    def __init__(self, store: Store, settings: MasterSettings) -> None:
        self._log = store.audit_log
        self._keep_s = settings.keep_audit_days * 86400.0

    def begin(self, caller: Caller, request: web.Request, did: str) -> Deed:
        """Return what this caller does, to what the request's path names."""
        return Deed(
            at=time.time(),
            who=caller.name,
            role=caller.role,
            token=caller.token,
            address=request.remote or "",
            did=did,
            on=_ids(request.match_info)[:_CUT],
            keep_s=self._keep_s,
        )

    async def note(self, deed: Deed, made: str = "") -> None:
        """Note it now that it is done, unless a step has. ``made``: the id of what was made."""
        if not deed.is_noted:
            deed.on = made[:_CUT] or deed.on
            await self._log.note(deed)


def _ids(path: Mapping[str, str]) -> str:
    return " ".join(path.values())
