"""Secrets of gangs: filled into the Runs of a launch as they are sent, so that rows and logs are without them."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

from loopline_shared.protocol.worker_link import Assign, Run


class GangSecrets:
    """Derives secrets from a key of the master, so that every member of a launch gets the same, at any time."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def fill_in(self, assign: Assign) -> Assign:
        """Return the Assign with the secrets of the gangs whose members it has prepared."""
        return replace(assign, run=tuple(self._filled(run) for run in assign.run))

    def _filled(self, run: Run) -> Run:
        if run.gang is None:
            return run
        job, task, number = run.attempt
        launch = f"gang {job}.{task}.{number - run.gang.rank}"
        secret = hmac.new(self._key, launch.encode(), hashlib.sha256).hexdigest()
        return replace(run, gang=replace(run.gang, secret=secret))
