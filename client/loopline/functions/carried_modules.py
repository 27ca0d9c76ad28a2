"""Modules that travel inside the pickle of a function, and are imported from memory where it is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any


def carried(packed: bytes, pickle: bytes) -> bytes:
    """Return the pickle of a function that brings modules along.

    ``packed``: for each module its name and a tuple of file, whether it is a package, and source; as a compressed
    literal of Python.
    """
    import cloudpickle

    return bytes(cloudpickle.dumps(_Carrier(packed, pickle)))


class _Carrier:
    """Pickles as a call that puts the modules within reach of ``import``, and then gives the function."""

    def __init__(self, packed: bytes, pickle: bytes) -> None:
        self._packed, self._pickle = packed, pickle

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _unpacker(), (self._packed, self._pickle, hashlib.sha256(self._packed).hexdigest())


def _unpacker() -> Callable[[bytes, bytes, str], Any]:
    """Return a function that is pickled by value, so that workers need no client of Loopline's."""
    importer = _importer()

    def unpack(packed: bytes, pickle: bytes, digest: str) -> Any:
        import ast
        import importlib.util  # noqa: F401 - which the importer needs, before it is asked for it
        import pickle as pickles
        import sys
        import zlib

        importers: dict[str, Any] = sys.__dict__.setdefault("_loopline_modules", {})
        if digest not in importers:
            new = importer(dict(ast.literal_eval(zlib.decompress(packed).decode())))
            for old in importers.values():
                for name in old.changed_in(new):  # in an interpreter of a session that programs share
                    sys.modules.pop(name, None)
            importers[digest] = new
            sys.meta_path.insert(0, new)
        return pickles.loads(pickle)  # noqa: S301

    return unpack


def _importer() -> type[Any]:
    """Return a class that is pickled by value, too. It runs under Python 3.9."""

    class CarriedImporter:
        """Imports modules from memory. A file of theirs that is not there still names the place in tracebacks."""

        def __init__(self, sources: dict[str, tuple[str, bool, str]]) -> None:
            self.sources = sources

        def changed_in(self, other: Any) -> list[str]:
            """Return the modules that another importer has otherwise."""
            return [name for name, entry in self.sources.items() if other.sources.get(name, entry) != entry]

        def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
            if name not in self.sources:
                return None
            import importlib.util  # after the question, which each import asks

            file, is_package, _ = self.sources[name]
            spec: Any = importlib.util.spec_from_loader(name, self, origin=file, is_package=is_package)  # type: ignore[arg-type]
            spec.has_location = True  # so that the module has ``__file__``
            return spec

        def create_module(self, spec: Any) -> None:
            return None

        def exec_module(self, module: Any) -> None:
            file, _, source = self.sources[module.__name__]
            exec(compile(source, file, "exec"), module.__dict__)  # noqa: S102

        def get_source(self, name: str) -> str:
            return self.sources[name][2]

    return CarriedImporter
