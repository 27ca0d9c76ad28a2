"""Notes in the audit log of what requests changed: who asked for it, and from where."""

from __future__ import annotations

import time
from collections.abc import Mapping

from aiohttp import web

from loopline_master.http.auth import Caller
from loopline_master.settings import MasterSettings
from loopline_master.store import Store

_CUT = 200


class Deeds:
    """Notes deeds in the audit log."""

    def __init__(self, store: Store, settings: MasterSettings) -> None:
        self._log = store.audit_log
        self._keep_s = settings.keep_audit_days * 86400.0

    async def note(self, caller: Caller, request: web.Request, did: str, on: str = "") -> None:
        """Note that this caller did something. ``on``: to what; the ids in the request's path if not given."""
        by = {"who": caller.name, "role": caller.role, "token": caller.token, "address": request.remote or ""}
        deed = {"at": time.time(), **by, "did": did, "on": (on or _ids(request.match_info))[:_CUT]}
        await self._log.note(deed, self._keep_s)


def _ids(path: Mapping[str, str]) -> str:
    return " ".join(path.values())
