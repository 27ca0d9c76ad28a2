"""Trace files: opened as text, and named in errors."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from loopline_shared.errors import LooplineError


@contextmanager
def opened(file: Path) -> Iterator[TextIO]:
    """Open a text file, which may be packed by gzip."""
    try:
        with (
            gzip.open(file, "rt", errors="replace") if file.suffix == ".gz" else file.open(errors="replace") as lines
        ):
            yield lines
    except (OSError, EOFError) as error:  # EOFError: half a gzip file
        reason = getattr(error, "strerror", None) or str(error)
        raise LooplineError("trace", f"{file} cannot be read: {reason}") from None


@contextmanager
def named(file: Path) -> Iterator[None]:
    """Name the file in errors that name a line."""
    try:
        yield
    except LooplineError as error:
        raise LooplineError(error.code, f"{file}: {error.message}", error.hint) from None


def finite(text: str) -> float | None:
    """Return the number that a text says; None unless it says a finite one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
