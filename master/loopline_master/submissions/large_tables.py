"""Large tables of parameters: kept once, as a row file, instead of in the job's row and in the event log."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from loopline_master.files.blobs import Blobs
from loopline_shared.job.parameters import RowFile, Table
from loopline_shared.row_lines import write_row
from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec

LARGER_BYTES = 2**20
_FEW = 16
"""Rows that are not measured: each is bounded (MAX_RUN_CHARACTERS)."""


def has_many_rows(spec: JobSpec) -> bool:
    """True if a table, or listed tasks, may be large."""
    return len(spec.parameters.rows if isinstance(spec.parameters, Table) else spec.tasks or ()) > _FEW


def with_its_table_as_file(blobs: Blobs, spec: JobSpec, check_room: Callable[[], None]) -> tuple[JobSpec, int]:
    """Return the job with a table of over 1 MiB replaced by a row file of the same rows, and that file's bytes.

    Other jobs are returned as they are. ``check_room`` raises LooplineError if nothing more may be written.
    """
    rows = _rows_of(spec)
    lines = b"".join(map(write_row, rows))
    if len(lines) <= LARGER_BYTES:
        return spec, 0
    if blobs.retain(hashlib.sha256(lines).hexdigest()) is None:  # else the same has been submitted before
        check_room()
    file = RowFile(file=f"sha256:{blobs.write(lines)}", count=len(rows))
    return spec.model_copy(update={"parameters": file, "tasks": None}), len(lines)


def _rows_of(spec: JobSpec) -> Sequence[dict[str, Scalar]]:
    """Return the rows of a table, or of listed tasks that have parameters and nothing else of their own."""
    if isinstance(spec.parameters, Table):
        return spec.parameters.rows
    tasks = spec.tasks or ()
    if any(task.model_fields_set - {"parameters"} for task in tasks):
        return ()
    return [task.parameters for task in tasks]
