"""Staging of inputs: all files that a job's tasks take are here, and listed in a manifest, before it is submitted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from loopline_master.files.blobs import Blobs
from loopline_shared import manifest, paths
from loopline_shared.errors import LooplineError
from loopline_shared.model import InputFile
from loopline_shared.spec import JobSpec, named_files, staged

_FEW = 2


async def list_inputs(blobs: Blobs, spec: JobSpec) -> str | None:
    """Write the manifest of the inputs that all tasks share, and return its SHA-256; None if there are none.

    Raises LooplineError if an input of the job or of one task, its row file or its function has not been uploaded.
    Those that have are retained until the job names them.
    """
    names = named_files(spec)
    if not names:
        return None
    if len(names) <= _FEW and not spec.inputs and not spec.tasks:  # a thread would cost more than the work
        return _list(blobs, spec, names)
    return await asyncio.to_thread(_list, blobs, spec, names)


def warnings_about(spec: JobSpec) -> list[str]:
    """Return warnings about input names that clash on some systems."""
    pair = None if spec.requires.os == "linux" else paths.alike(spec.inputs)
    if pair is None:
        return []
    return [f"the inputs {pair[0]} and {pair[1]} are one file on Windows and macOS: rename one, or use --os linux"]


def _list(blobs: Blobs, spec: JobSpec, names: set[str]) -> str | None:
    missing = [name for name in names if blobs.retain(name) is None]
    for task in spec.tasks or ():
        for _ in _sized(blobs, staged(task.inputs)):
            pass
    common = dict(_sized(blobs, staged(spec.inputs)))
    if missing:
        raise _missing("function" if spec.function else "row file", missing[0])
    return blobs.write(manifest.encode(common)) if common else None


def _sized(blobs: Blobs, files: dict[str, InputFile]) -> Iterator[tuple[str, InputFile]]:
    for path, file in files.items():
        size_bytes = blobs.retain(file.sha256)
        if size_bytes is None:
            raise _missing(f"input {path}", file.sha256)
        yield path, replace(file, size_bytes=size_bytes)


def _missing(what: str, sha256: str) -> LooplineError:
    message = f"the {what} (sha256:{sha256}) is not on this master"
    hint = f"upload it first: loopline submit --input does, or PUT /api/v1/files/{sha256}"
    return LooplineError("missing_input", message, hint, status=422)
