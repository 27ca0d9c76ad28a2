"""Output that all experiments share: tables, JSON or CSV on stdout, and everything in a folder."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from loopline_shared.errors import LooplineError
from loopline_simulator.experiments.options import SweepOptions
from loopline_simulator.progress import peak_memory_bytes

_WIDTH = 100
_FEW_SEEDS = 5
"""Below this number, an interval by Student's t is several times as wide as with many runs."""

Show = Callable[[Console], None]
Draw = Callable[[Path], Iterable[Path]]
"""Draws pictures into a folder, and returns their files."""


def publish(
    runs: SweepOptions,
    document: Mapping[str, Any],
    show: Show | None,
    *,
    rows: str = "runs",
    draw: Draw | None = None,
    pictures: Path | None = None,
) -> None:
    """Print the answer as the options say, and write it into the folder of ``--out``.

    ``document``: the answer as JSON, with the experiment's name; under ``rows`` it has a line for each run, which is
    what CSV consists of. ``show``: None if there is no table. ``pictures``: folder for the pictures alone.
    """
    _warn_of_few(runs)
    clean = without_nan(dict(document))
    if runs.json:
        print(json.dumps(clean, indent=1))
    elif runs.csv:
        write_csv(clean[rows], sys.stdout)
    elif show:
        show(wide_console())
    folders = [] if pictures is None else [pictures]
    if runs.out is not None:
        _write_all(runs.out / str(clean["experiment"]), clean, show, rows)
        folders.append(runs.out)
    for folder in folders if draw else ():
        _told([] if draw is None else draw(folder))


def _write_all(stem: Path, document: Mapping[str, Any], show: Show | None, rows: str) -> None:
    texts = {"csv": StringIO(), "json": StringIO(json.dumps(document, indent=1) + "\n")}
    write_csv(document[rows], texts["csv"])
    if show:
        texts["txt"] = StringIO()
        show(Console(file=texts["txt"], highlight=False, width=_WIDTH))
    files = {stem.with_name(f"{stem.name}.{kind}"): text.getvalue() for kind, text in texts.items()}
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            file.write_text(text, "utf-8")
    except OSError as error:
        raise LooplineError("unwritable", f"{error.filename or stem}: {error.strerror}") from None
    _told(files)


def _told(files: Iterable[Path]) -> None:
    console = Console(stderr=True, highlight=False)
    for file in files:
        console.print(f"wrote {file}", style="dim", markup=False, soft_wrap=True)


def _warn_of_few(runs: SweepOptions) -> None:
    if runs.seeds < _FEW_SEEDS:
        few = "1 run of each setting gives" if runs.seeds == 1 else f"{runs.seeds} runs of each setting give"
        what = "no interval" if runs.seeds == 1 else "wide intervals that depend much on chance"
        text = f"{few} {what}: use --seeds 10 or more"
        Console(stderr=True, highlight=False).print(text, style="dim", soft_wrap=True)


def write_csv(rows: Sequence[Mapping[str, Any]], file: TextIO) -> None:
    """Write tidy CSV: a line for each run, a column for each figure. What is nested gets names such as total.mean."""
    flat = [dict(_flat(row)) for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{name}.")
        elif isinstance(item, list | tuple):
            yield from _flat({str(place): one for place, one in enumerate(item, 1)}, f"{prefix}{name}.")
        else:
            yield prefix + name, item


def wide_console() -> Console:
    """Return a console of 100 columns, or of the terminal's width if that is less."""
    return Console(highlight=False, width=min(_WIDTH, Console().width) if Console().is_terminal else _WIDTH)


def effort(runs: int, events: int, took_s: float) -> str:
    """Return a line about the computation's size, time and memory."""
    peak = peak_memory_bytes()
    memory = f"; at most {peak / 1e6:,.0f} MB in a process" if peak else ""
    return f"{runs} runs, {events:,} events in {took_s:.1f} s: {events / took_s:,.0f} events per second{memory}"


def without_nan(value: Any) -> Any:
    """Replace NaN and infinity by null, as JSON requires."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
