"""Modules that travel inside the pickle of a function, and are imported from memory where it is loaded.

They travel as a zip archive, with each module's own file as its comment, so that tracebacks name that. Processes that
the function starts find them in the archive, which is on their path as an open file of the interpreter's.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

Sources = Mapping[str, tuple[str, bool, str]]
"""By name of a module: its file, whether it is a package, its source."""


def pack(sources: Sources) -> bytes:
    """Return an archive, the same for the same modules."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (origin, is_package, source) in sorted(sources.items()):
            entry = zipfile.ZipInfo(f"{name.replace('.', '/')}{'/__init__' if is_package else ''}.py")
            entry.comment = origin.encode()
            archive.writestr(entry, source, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def carried(packed: bytes, pickle: bytes) -> bytes:
    """Return the pickle of a function that brings an archive of modules along."""
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
    read, expose, importer = _reader(), _exposer(), _importer()

    def unpack(packed: bytes, pickle: bytes, digest: str) -> Any:
        import importlib.util  # noqa: F401 - which the importer needs, before it is asked for it
        import pickle as pickles
        import sys

        importers: dict[str, Any] = sys.__dict__.setdefault("_loopline_modules", {})
        if digest not in importers:
            new = importer(read(packed))
            for old in importers.values():
                for name in old.changed_in(new):  # in an interpreter of a session that programs share
                    sys.modules.pop(name, None)
            importers[digest] = new
            sys.meta_path.insert(0, new)
            sys.path.insert(1, expose(packed))
        return pickles.loads(pickle)  # noqa: S301

    return unpack


def _reader() -> Callable[[bytes], dict[str, tuple[str, bool, str]]]:
    def read(packed: bytes) -> dict[str, tuple[str, bool, str]]:
        """Return the modules of an archive."""
        import io
        import zipfile

        sources = {}
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            for entry in archive.infolist():
                path = entry.filename[: -len(".py")]
                is_package = path.endswith("/__init__")
                name = (path[: -len("/__init__")] if is_package else path).replace("/", ".")
                sources[name] = (entry.comment.decode(), is_package, archive.read(entry).decode())
        return sources

    return read


def _exposer() -> Callable[[bytes], str]:
    def expose(packed: bytes) -> str:
        """Return a path under which other processes can import from an archive, for as long as this one lives."""
        import atexit
        import os
        import tempfile

        if hasattr(os, "memfd_create"):
            file = os.memfd_create("loopline-modules")
            path = f"/proc/{os.getpid()}/fd/{file}"
        else:
            file, path = tempfile.mkstemp(".zip", "loopline-modules-")
            atexit.register(os.unlink, path)
        while packed:
            packed = packed[os.write(file, packed) :]
        return path

    return expose


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
