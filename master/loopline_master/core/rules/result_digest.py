"""What two attempts at a task have in common if they computed the same: a digest of what they brought."""

from __future__ import annotations

from hashlib import sha256

from loopline_master.core.entities import Attempt
from loopline_shared.model import Output
from loopline_shared.spec import JobSpec


def digest_of(spec: JobSpec, attempt: Attempt) -> str:
    """Covers the output files and the value where the job says that these are its result, else what was printed."""
    if spec.outputs or spec.function:
        parts = [f"{file.path}\0{file.sha256}" for file in sorted(attempt.outputs or (), key=lambda file: file.path)]
        parts += [_of_output(attempt.value)] if attempt.value is not None else []
    else:
        parts = [_of_output(attempt.stdout or Output())]
    return sha256("\n".join(parts).encode()).hexdigest()


def _of_output(output: Output) -> str:
    """The same whether its bytes travelled inside the result or as a file."""
    return f"{output.size_bytes} {output.sha256 or sha256(output.data).hexdigest()}"
