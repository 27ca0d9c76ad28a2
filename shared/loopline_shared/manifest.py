"""The manifest: a file that lists the inputs of a job's tasks, itself named by its content.

A job may have thousands of inputs: a worker fetches the list once, and a Run only names it. It is JSON in one
canonical form: ``{"data/x.csv": {"sha256": "...", "size_bytes": 12, "executable": false}}``. Links
(``{"link": "x.csv"}``) and empty folders (``{"folder": true}``) are listed, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ConfigDict, TypeAdapter

from loopline_shared.model import StagedInput
from loopline_shared.paths import RelativePath

MAX_FILES = 10_000

Manifest = Mapping[str, StagedInput]
_adapter = TypeAdapter(dict[RelativePath, StagedInput], config=ConfigDict(defer_build=True))


def encode(files: Manifest) -> bytes:
    return _adapter.dump_json(dict(sorted(files.items())))


def decode(content: bytes) -> dict[str, StagedInput]:
    """Read a manifest. Raises ValueError unless a master may have written it."""
    files = _adapter.validate_json(content)
    if len(files) > MAX_FILES:
        raise ValueError(f"{len(files):,} files are more than the limit of {MAX_FILES:,}")
    return files
