"""A table that leaves its least important columns out where the terminal is too narrow for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_UNLIMITED = 10_000


class FittedTable:
    """A table that fits the terminal: columns are left out first, then long cells are folded."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        right: Iterable[str] = (),
        drop: Sequence[str] = (),
        fold: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """``drop``: columns that may be left out, the least important first; ``fold``: those that are rather folded,
        and to how many letters.
        """
        self._columns, self._right, self._drop, self._fold = columns, frozenset(right), drop, fold
        self._rows: list[tuple[RenderableType, ...]] = []
        self.has_header = True

    def add_row(self, *cells: RenderableType) -> None:
        """Add a row with a cell for every column. Texts are shown as they are."""
        self._rows.append(tuple(Text(cell) if isinstance(cell, str) else cell for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table with as many columns as there is room for."""
        yield self._fitting(console, options)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the room that it takes up."""
        return Measurement.get(console, options, self._fitting(console, options))

    def _fitting(self, console: Console, options: ConsoleOptions) -> Table:
        kept, left_out = list(self._columns), list(self._drop)
        while True:
            folded = self._table(kept, self._fold).__rich_measure__(console, options.update(max_width=_UNLIMITED))
            if folded.maximum <= options.max_width or not left_out:
                return self._table(kept)
            kept.remove(left_out.pop(0))

    def _table(self, kept: Sequence[str], most: Mapping[str, int] = MappingProxyType({})) -> Table:
        box = SIMPLE_HEAD if self.has_header else None
        made = Table(box=box, pad_edge=False, show_edge=False, show_header=self.has_header, header_style="bold")
        places = [place for place, name in enumerate(self._columns) if name in kept]
        for place in places:
            name = self._columns[place]
            justify: JustifyMethod = "right" if name in self._right else "left"
            made.add_column(name, justify=justify, overflow="fold", max_width=most.get(name))
        for row in self._rows:
            made.add_row(*(row[place] for place in places))
        return made
