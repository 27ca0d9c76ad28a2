"""Patterns of output files, matched name by name on the way down a scratch folder: other folders are not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from loopline_shared.paths import ANY_FOLDERS

_Place = tuple[int, int]
"""Progress of a path: a pattern's number, and how many of its names have been matched."""


@dataclass(frozen=True, slots=True)
class FilePattern:
    """A pattern of output files."""

    text: str  # for messages
    names: tuple[str, ...]  # of folders, and last of files or folders
    is_exact: bool  # the names are those of one file or folder: no wildcards
    is_optional: bool = False


class PatternMatcher:
    """Matches the paths of a folder's tree against patterns.

    A folder that a pattern matches is matched with everything below it, hidden files included. Elsewhere a wildcard
    does not match hidden names, as in a shell.
    """

    def __init__(self, patterns: Sequence[FilePattern]) -> None:
        self._patterns = patterns
        start = {(index, 0) for index in range(len(patterns))}
        self.start = frozenset(place for place in self._closed(start) if not self._is_complete(place))

    def after(self, places: frozenset[_Place], name: str) -> frozenset[_Place]:
        """Return the places one name further; empty if nothing below it matches."""
        return self._closed({after for place in places for after in self._after(place, name)})

    def matched(self, places: frozenset[_Place]) -> frozenset[int]:
        """Return the numbers of the patterns that match as a whole."""
        return frozenset(place[0] for place in places if self._is_complete(place))

    def _is_complete(self, place: _Place) -> bool:
        index, matched = place
        return matched == len(self._patterns[index].names)

    def _after(self, place: _Place, name: str) -> Iterator[_Place]:
        index, matched = place
        if self._is_complete(place):
            yield place
            return
        pattern = self._patterns[index]
        wanted = pattern.names[matched]
        if pattern.is_exact:
            if name == wanted:
                yield index, matched + 1
        elif name.startswith(".") and not wanted.startswith("."):
            return
        elif wanted == ANY_FOLDERS:
            yield index, matched
        elif fnmatchcase(name, wanted):
            yield index, matched + 1

    def _closed(self, places: set[_Place]) -> frozenset[_Place]:
        """Add the places behind each ``**``, which may match no folder at all."""
        todo = list(places)
        while todo:
            index, matched = todo.pop()
            pattern, after = self._patterns[index], (index, matched + 1)
            if self._is_complete((index, matched)) or pattern.is_exact or pattern.names[matched] != ANY_FOLDERS:
                continue
            if after not in places:
                places.add(after)
                todo.append(after)
        return frozenset(places)
