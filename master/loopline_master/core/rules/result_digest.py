"""Digest of a result: equal for two attempts at a task that computed the same."""

from __future__ import annotations

from hashlib import sha256

from loopline_master.core.entities import Attempt
from loopline_shared.model import Output
from loopline_shared.spec import JobSpec


def digest_of(spec: JobSpec, attempt: Attempt) -> str:
    """Return the digest of the output files and the return value, if the job declares any; else of stdout."""
    if spec.outputs or spec.function:
        parts = [f"{file.path}\0{file.sha256}" for file in sorted(attempt.outputs or (), key=lambda file: file.path)]
        parts += [_of_output(attempt.value)] if attempt.value is not None else []
    else:
        parts = [_of_output(attempt.stdout or Output())]
    return sha256("\n".join(parts).encode()).hexdigest()


def _of_output(output: Output) -> str:
    """Return size and hash, which are the same for bytes inside the result and in a file."""
    return f"{output.size_bytes} {output.sha256 or sha256(output.data).hexdigest()}"
