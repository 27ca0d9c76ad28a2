"""Late modules: a program's imports of them cost nothing until it first uses one of their attributes.

A program lists them before its other imports. Its files import them at the top, as modules (``from package import
module``): ``from module import name`` uses an attribute, and so executes the module at once. In a program that lists
none, as those of our users, the same files import as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any

from loopline_shared.terminal.import_blocker import without_authorities

_EXECUTING = RLock()


def declare(*names: str) -> None:
    """Have modules with these full names executed at their first use."""
    sys.meta_path.insert(0, _Finder(frozenset(names)))


class _LateModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name == "__path__":  # an import asks whether this is a package
            raise AttributeError(name)
        with _EXECUTING:  # other threads wait; this one may come back through a circular import
            if loader := vars(self).pop("_late_loader", None):
                try:
                    with without_authorities():
                        loader.exec_module(self)
                except BaseException as error:
                    vars(self)["_late_loader"] = loader  # the next use tries again, and meets the same error
                    if isinstance(error, AttributeError):  # it would look like a name that this module lacks
                        raise ImportError(f"{self.__name__} cannot be imported: {error}") from error
                    raise
        return super().__getattribute__(name)


class _LateLoader(Loader):
    def __init__(self, real: Loader) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LateModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["_late_loader"] = self._real


class _Finder(MetaPathFinder):
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec and spec.loader:
            spec.loader = _LateLoader(spec.loader)
        return spec
