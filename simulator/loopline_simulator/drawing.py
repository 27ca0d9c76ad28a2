"""Figures written to files, with the same bytes every time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from loopline_shared.errors import LooplineError

KINDS = ("pdf", "png", "svg")
_STYLE: Any = {"svg.hashsalt": "loopline", "font.family": "DejaVu Sans", "font.size": 11, "hatch.linewidth": 0.5}


def save(make_figure: Callable[[], Any], stem: Path, *, dpi: int) -> list[Path]:
    """Return the files written: ``stem`` with each of ``KINDS`` as its suffix. A missing folder is created."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        figure = make_figure()
        files = [stem.with_name(f"{stem.name}.{kind}") for kind in KINDS]
        try:
            stem.parent.mkdir(parents=True, exist_ok=True)
            if layout := figure.get_layout_engine():  # once for all kinds: it takes most of the time
                layout.execute(figure)
                figure.set_layout_engine("none")
            for file in files:
                figure.savefig(file, dpi=dpi, metadata=_metadata(file))
        except OSError as error:
            raise LooplineError("unwritable", f"{error.filename or stem}: {error.strerror}") from None
    return files


def _metadata(file: Path) -> dict[str, None]:
    """Leave out the date and the library's version, which would change the bytes."""
    left_out = {"svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer"), "png": ("Software",)}
    return dict.fromkeys(left_out[file.suffix[1:]])
