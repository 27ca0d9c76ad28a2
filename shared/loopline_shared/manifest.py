"""The manifest: a file that lists what the tasks of a job find in their scratch folders, itself named by its content.

A job may have thousands of inputs: a worker fetches the list once, and a Run only names it. It is JSON, always
written the same way: ``{"data/x.csv": {"sha256": "...", "size_bytes": 12, "executable": false}}``.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ConfigDict, TypeAdapter

from loopline_shared.model import InputFile
from loopline_shared.paths import RelativePath

MAX_FILES = 10_000
MAX_BYTES = 32 * 2**20
"""More than the longest: so many files, with the longest paths."""

Manifest = Mapping[str, InputFile]
_adapter = TypeAdapter(dict[RelativePath, InputFile], config=ConfigDict(defer_build=True))


def encode(files: Manifest) -> bytes:
    return _adapter.dump_json(dict(sorted(files.items())))


def decode(content: bytes) -> dict[str, InputFile]:
    """ValueError where it is none that a master may have written."""
    files = _adapter.validate_json(content)
    if len(files) > MAX_FILES:
        raise ValueError(f"{len(files):,} files are more than the limit of {MAX_FILES:,}")
    return files
