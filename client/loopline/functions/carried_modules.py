"""Modules that travel with a function, as a preparation (protocol/chunks.py), and are imported from memory.

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


def preparation(packed: bytes) -> bytes:
    """Return a pickle that makes the modules of an archive importable where it is loaded."""
    import cloudpickle

    return bytes(cloudpickle.dumps(_ModuleArchive(packed)))


class _ModuleArchive:
    """Pickles as a call that makes the modules importable."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _unpacker(), (self._packed, hashlib.sha256(self._packed).hexdigest())


def _unpacker() -> Callable[[bytes, str], Any]:
    """Return a function that is pickled by value, so that workers need no client of Loopline's."""
    read, expose, importer = _reader(), _exposer(), _importer()

    def unpack(packed: bytes, digest: str) -> None:
        import importlib.util  # noqa: F401 - which the importer needs, before it is asked for it
        import sys

        importers: dict[str, Any] = sys.__dict__.setdefault("_loopline_modules", {})
        if digest not in importers:
            importers[digest] = importer(read(packed))
            importers[digest].path = expose(packed)
        mine = importers[digest]
        if mine in sys.meta_path:  # a call may have changed either list
            sys.meta_path.remove(mine)
        if mine.path in sys.path:
            sys.path.remove(mine.path)
        sys.meta_path.insert(0, mine)
        sys.path.insert(1, mine.path)
        loaders = {name: getattr(module, "__loader__", None) for name, module in list(sys.modules.items())}
        ours = {name: loader for name, loader in loaders.items() if loader in importers.values()}
        if any(importers[digest].has_other(name, loader) for name, loader in ours.items()):
            for name in ours:  # programs that share a session have different modules of one name
                del sys.modules[name]
            sys.__dict__.pop("_loopline_initialized", None)  # initializers may have changed these modules

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

        path = ""  # of the archive

        def __init__(self, sources: dict[str, tuple[str, bool, str]]) -> None:
            self.sources = sources

        def has_other(self, name: str, loader: Any) -> bool:
            """True if this importer's module of this name differs from the loaded one."""
            entry = loader.sources[name]
            return bool(self.sources.get(name, entry) != entry)

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
