"""Secrets of jobs: sealed in rows and logs, opened only in the message to a task's worker.

A secret is an environment variable. It is stored as text that only this master's key opens: AES-SIV, which gives the
same text for the same secret, so that a submission that is repeated is recognised. The name is sealed with it.
"""

from __future__ import annotations

import base64
import logging
from dataclasses import replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from loopline_shared.errors import LooplineError
from loopline_shared.protocol.worker_link import NAMES_OF_SECRETS, Assign, Run
from loopline_shared.spec import JobSpec

HIDDEN = "(hidden)"
"""Is shown in place of a value."""
SEALED = "loopline-sealed:"
"""Is before a value that is sealed."""

log = logging.getLogger(__name__)


class JobSecrets:
    """Seals and opens secrets with a key of the master."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESSIV(key[:32])

    def sealed(self, spec: JobSpec) -> JobSpec:
        """Return the job with its secrets sealed, as variables. Raises LooplineError for a value that was hidden."""
        for name, value in (*spec.environment.items(), *spec.secrets.items()):
            if value == HIDDEN or value.startswith(SEALED):
                message = f"the value of the variable {name} was hidden, and is not known"
                raise LooplineError("hidden_value", message, "give it again: --env or --secret", status=422)
        if not spec.secrets:
            return spec
        sealed = {name: self._seal(name, value) for name, value in spec.secrets.items()}
        return spec.model_copy(update={"environment": spec.environment | sealed, "secrets": {}})

    def fill_in(self, assign: Assign) -> Assign:
        """Return the Assign with the secrets of its runs opened."""
        if not any(map(has_secrets, assign.run)):
            return assign
        return replace(assign, run=tuple(self._filled(run) for run in assign.run))

    def _filled(self, run: Run) -> Run:
        names = _names(run)
        if not names:
            return run
        opened = {name: self._open(name, run.environment[name]) for name in names}
        return replace(run, environment=run.environment | opened | {NAMES_OF_SECRETS: ",".join(names)})

    def _seal(self, name: str, value: str) -> str:
        return SEALED + base64.b64encode(self._cipher.encrypt(value.encode(), [name.encode()])).decode()

    def _open(self, name: str, sealed: str) -> str:
        """Return the secret; empty if another key has sealed it: its task then fails."""
        try:
            data = base64.b64decode(sealed.removeprefix(SEALED))
            return self._cipher.decrypt(data, [name.encode()]).decode()
        except (InvalidTag, ValueError):
            log.error("the secret %s of a job is lost: tokens/job-key in the data folder is not what it was", name)
            return ""


def shown(spec: JobSpec, *, is_own: bool) -> JobSpec:
    """Return the job without its secrets; other variables have values only for its user."""
    if not spec.environment:
        return spec
    values = {
        name: value if is_own and not value.startswith(SEALED) else HIDDEN for name, value in spec.environment.items()
    }
    return spec.model_copy(update={"environment": values})


def has_secrets(run: Run) -> bool:
    """True if the run has secrets that are to be opened."""
    return any(value.startswith(SEALED) for value in run.environment.values())


def _names(run: Run) -> list[str]:
    return [name for name, value in run.environment.items() if value.startswith(SEALED)]
