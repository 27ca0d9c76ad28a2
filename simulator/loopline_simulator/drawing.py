"""Figures written to files, with the same bytes every time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loopline_shared.errors import LooplineError

_STYLE: Any = {"svg.hashsalt": "loopline", "font.family": "DejaVu Sans", "font.size": 11, "hatch.linewidth": 0.5}


def save(make_figure: Callable[[], Any], stem: Path, *, kinds: Sequence[str], dpi: int) -> list[Path]:
    """Return the files written: ``stem`` with each of ``kinds`` as its suffix. A missing folder is created."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        figure = make_figure()
        files = [stem.with_name(f"{stem.name}.{kind}") for kind in kinds]
        try:
            stem.parent.mkdir(parents=True, exist_ok=True)
            for file in files:
                figure.savefig(file, dpi=dpi, metadata=_metadata(file))
        except OSError as error:
            raise LooplineError("unwritable", f"{error.filename or stem}: {error.strerror}") from None
    return files


def _metadata(file: Path) -> dict[str, None]:
    """Leave out the date and the library's version, which would change the bytes."""
    return {"Date": None, "Creator": None} if file.suffix == ".svg" else {"Software": None}
