"""Plain values: data alone is read of what a worker wrote, for programs that trust no worker.

They are unpickled with an allowlist of data types: numbers, Decimal, text, bytes, lists, tuples, sets, dicts,
dates, times, UUIDs, arrays of numpy without objects, and exceptions of the standard library. Whatever else a pickle
names is refused before it is looked up (docs.python.org, "Restricting Globals").
"""

from __future__ import annotations

import builtins
import io
import pickle
from typing import Any

_BUILTINS = frozenset({"bool", "bytearray", "complex", "frozenset", "range", "set", "slice"})
_CLASSES = frozenset(
    {
        *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
        ("decimal", "Decimal"),
        ("uuid", "UUID"),
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
        *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    }
)


class NotPlainError(pickle.UnpicklingError):
    """Raised for a value that is more than data."""


def loads(data: bytes) -> Any:
    """Return the value. Raises NotPlainError if there is more in it than data."""
    return _PlainReader(io.BytesIO(data)).load()


class _PlainReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module == "builtins" and _is_data(name)) or (module, name) in _CLASSES:
            return super().find_class(module, name)
        raise NotPlainError(f"it is not plain: it names {module}.{name}")


def _is_data(name: str) -> bool:
    kind = getattr(builtins, name, None)
    return name in _BUILTINS or (isinstance(kind, type) and issubclass(kind, BaseException))
