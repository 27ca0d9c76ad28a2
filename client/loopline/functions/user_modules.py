"""The user's own modules that calls import: they go to workers with the function, by content.

A module is the user's if its file stands neither in the standard library nor among installed packages: beside the
script, in the notebook's folder, in a project installed in place. Those go that the pickles name, and those that
these import, down to the last; a module that is imported by a name computed at run time is not seen.
"""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from loopline.functions.carried_modules import Sources, pack, preparation
from loopline_shared.errors import LooplineError
from loopline_shared.protocol import chunks

MOST_BYTES = 4 * 2**20
"""Most bytes of source that go along."""
_MOST_REMEMBERED = 256
_CHECK_EVERY_S = 2.0
_parsing = threading.Lock()
"""Before 3.11.8, a SystemError may be raised where two threads parse at a time (python/cpython#106905)."""
_INSTALLED = {"site-packages", "dist-packages"}
_NOTHING = rb"\x8c(?!)"  # begins with a byte to look for, which is quick in large arguments
_SHORT_STRING = rb"\x8c.((?:%s)(?:\.\w+)*)(?!\w)"  # as pickles have the names of modules, classes and variables


@dataclass(frozen=True)
class CarriedModules:
    """Modules on their way to workers."""

    names: tuple[str, ...] = ()
    packed: bytes = b""

    def with_function(self, pickle: bytes, preparations: Iterable[bytes] = ()) -> bytes:
        """Return the file of a function that brings its modules along, and other preparations that may use them."""
        own = [preparation(self.packed)] if self.names else []
        return chunks.function_file(pickle, [*own, *preparations])


class UserModules:
    """The user's modules that the calls of one executor have needed so far; each file is read once."""

    def __init__(self, go_along: bool = True) -> None:
        self.carried = CarriedModules()
        self._go_along = go_along
        self._sources: dict[str, tuple[str, bool, str]] = {}
        self._by_function: dict[bytes, frozenset[str]] = {}
        self._loaded, self._pattern = 0, re.compile(_NOTHING)
        self._times_ns: dict[
            str, int
        ] = {}  # when each file was changed last, as it was read; without those warned of
        self._checked = 0.0

    def needed(self, function: bytes, calls: Iterable[bytes], preparations: Iterable[bytes] = ()) -> CarriedModules:
        """Return the modules that the pickles of a function, of its preparations and arguments name or import.

        Raises LooplineError if they are larger than ``MOST_BYTES``.
        """
        if not self._go_along:
            return self.carried
        if self._loaded != len(sys.modules):
            self._loaded, self._pattern = len(sys.modules), _pattern(_loaded_names())
        names = frozenset(_named(self._pattern, calls)).union(*map(self._named_by, (function, *preparations)))
        if not names <= self._sources.keys():
            self._add(names)
        if self._times_ns and time.monotonic() > self._checked + _CHECK_EVERY_S:
            self._checked = time.monotonic()
            self._warn_of_changes()
        return self.carried

    def _warn_of_changes(self) -> None:
        """Warn once per file that has changed since it was read: workers keep using the version read."""
        changed = [file for file, read in self._times_ns.items() if _changed_ns(file) not in (read, 0)]
        for file in changed:
            del self._times_ns[file]
            what = f"{file} has changed since this executor read it, and its workers keep what it read"
            print(f"loopline: {what}; a new Executor brings the new version", file=sys.stderr)

    def _named_by(self, function: bytes) -> frozenset[str]:
        """Return the modules that one pickle names. A loop may have a new one in each turn: few are remembered."""
        names = self._by_function.get(function)
        if names is None:
            if len(self._by_function) >= _MOST_REMEMBERED:
                self._by_function.clear()
            names = frozenset(_named(_pattern({*_loaded_names(), *_beside()}), [function]))
            self._by_function[function] = names
        return names

    def _add(self, names: Iterable[str]) -> None:
        """Read modules and what they import, and pack all anew."""
        sources, waiting = dict(self._sources), list(names)
        while waiting:
            name = waiting.pop()
            if name not in sources and (found := _read(name)) is not None:
                sources[name] = found
                waiting += imports(name, *found[1:])
            if "." in name:
                waiting.append(name.rpartition(".")[0])
        if sources.keys() == self._sources.keys():
            return
        _check_size(sources)
        new = {file for name, (file, _, source) in sources.items() if source and name not in self._sources}
        self._times_ns |= {file: _changed_ns(file) for file in new}
        self._sources = sources
        self.carried = CarriedModules(tuple(sorted(sources)), pack(sources))


def _pattern(names: Iterable[str]) -> re.Pattern[bytes]:
    """Return what finds these modules, and what is in them, among the strings of a pickle."""
    words = b"|".join(re.escape(name.encode()) for name in sorted(names))
    return re.compile(_SHORT_STRING % words if words else _NOTHING, re.DOTALL)


def _named(pattern: re.Pattern[bytes], pickles: Iterable[bytes]) -> Iterator[str]:
    for pickle in pickles:
        yield from (name.decode() for name in pattern.findall(pickle))


def _loaded_names() -> set[str]:
    """Return the top-level names of the user's modules that are imported."""
    return {name for name, file in _loaded_files() if "." not in name and _is_users(name, file)}


def _loaded_files() -> Iterator[tuple[str, str]]:
    for name, module in list(sys.modules.items()):
        places = [getattr(module, "__file__", None), *_places(module)]
        if file := next((place for place in places if isinstance(place, str)), None):
            yield name, file


def _places(module: Any) -> list[str]:
    """Return the folders of a package without ``__init__.py``."""
    path = getattr(module, "__path__", None)
    return list(path)[:1] if path is not None and type(path).__name__ == "_NamespacePath" else []


def _beside() -> set[str]:
    """Return the top-level names that could be imported from the user's folders on the path."""
    found = set[str]()
    for folder in _folders():
        files = list(folder.glob("*.py")) + [file.parent for file in folder.glob("*/__init__.py")]
        found |= {file.stem for file in files if file.stem.isidentifier()}
    return {name for name in found if name not in sys.stdlib_module_names and _is_users(name, "")}


def _folders() -> list[Path]:
    return [
        folder for entry in sys.path if (folder := Path(entry)).is_dir() and _is_users("", str(folder.absolute()))
    ]


def _is_users(name: str, file: str) -> bool:
    """True unless the file is of Python, of an installed package or of Loopline."""
    if name.partition(".")[0] == "__main__" or re.match(r"loopline(_\w+)?(\.|$)", name):
        return False
    path = Path(file)
    return not (_INSTALLED & set(path.parts) or any(path.is_relative_to(folder) for folder in _libraries()))


@cache
def _libraries() -> tuple[str, ...]:
    return tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})


def _read(name: str) -> tuple[str, bool, str] | None:
    """Return a module of the user's: file, whether it is a package, source. None if it is none, or not in Python."""
    module = sys.modules.get(name)
    if module is not None:
        if (folders := _places(module)) and _is_users(name, folders[0]):
            return folders[0], True, ""
        file = getattr(module, "__file__", None)
        is_package = hasattr(module, "__path__")
    else:
        file, is_package = _find(name)
    if not isinstance(file, str) or not file.endswith(".py") or not _is_users(name, file):
        return None
    try:
        return file, is_package, Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _changed_ns(file: str) -> int:
    """Return when a file was changed last; 0 if it is gone."""
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0


def _find(name: str) -> tuple[str | None, bool]:
    """Return the file of a module that is not imported here, and whether it is a package."""
    top, _, inner = name.partition(".")
    package = getattr(sys.modules.get(top), "__path__", None)
    folders = [Path(folder) for folder in package] if package and inner else _folders()
    parts = inner.split(".") if package and inner else name.split(".")
    for folder in folders:
        path = folder.joinpath(*parts)
        if path.with_suffix(".py").is_file():
            return str(path.with_suffix(".py").absolute()), False
        if (path / "__init__.py").is_file():
            return str((path / "__init__.py").absolute()), True
    return None, False


def imports(name: str, is_package: bool, source: str) -> Iterator[str]:
    """Yield the modules that a module may import, in functions too; some may be no modules, but what is in them."""
    try:
        with _parsing:
            tree = ast.parse(source)
    except (SyntaxError, ValueError):  # the import itself will say so
        return
    package = name if is_package else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.level == 0 or package):
            origin = (
                resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            )
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def _check_size(sources: Sources) -> None:
    sizes = {name: len(source) for name, (_, _, source) in sources.items()}
    if sum(sizes.values()) <= MOST_BYTES:
        return
    largest: Sequence[str] = sorted(sizes, key=lambda name: -sizes[name])[:3]
    message = f"your own modules that the calls import are {sum(sizes.values()) / 2**20:.0f} MiB of source"
    hint = f"the largest are {', '.join(largest)}; install them on the workers, and give Executor(own_modules=False)"
    raise LooplineError("modules_too_large", message, hint)
