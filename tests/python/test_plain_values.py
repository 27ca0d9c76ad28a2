"""Plain values: data is read, and no name in a pickle is resolved."""

from __future__ import annotations

import copyreg
import datetime
import os
import pickle
import uuid
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopline
from loopline.functions import plain_values
from loopline.functions.calls import CallError
from tests.python.small_grid import SmallGrid, failure_of

SCALARS = [None, True, 1, 2**99, 1.5, 2j, "text", b"bytes", bytearray(b"b")]
TIMES = [datetime.date(2026, 11, 29), datetime.datetime(2026, 11, 29, 13, 5, tzinfo=datetime.UTC), datetime.time(13)]
OTHERS = [*TIMES, datetime.timedelta(1), Decimal("1.10"), uuid.UUID(int=7)]
DATA = [*SCALARS, *OTHERS, [1], (1, "a"), {"a": {1}}, frozenset({2}), range(3)]


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(4, pickle.HIGHEST_PROTOCOL + 1))
def test_data_is_read_as_it_was(protocol: int) -> None:
    assert plain_values.loads(pickle.dumps(DATA, protocol)) == DATA
    array = np.arange(6.0).reshape(2, 3)
    assert (plain_values.loads(pickle.dumps(array, protocol)) == array).all()
    assert plain_values.loads(pickle.dumps(np.float64(1.5), protocol)) == 1.5


def test_an_exception_is_read_whatever_a_library_registered_for_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(copyreg.dispatch_table, KeyError, lambda error: (os.mkdir, error.args))  # type: ignore[arg-type]
    of_error, _ = pickle.loads(failure_of(KeyError("k")))
    assert repr(plain_values.loads(of_error)) == "KeyError('k')"


@pytest.mark.parametrize("value", [Fraction(1, 3), print, getattr, Path("x"), np.array([Path("x")])])
def test_all_else_is_refused(value: Any) -> None:
    with pytest.raises(plain_values.NotPlainError, match="it names"):
        plain_values.loads(pickle.dumps(value))


def test_a_value_that_would_run_code_fails_its_call_and_runs_nothing(grid: SmallGrid, tmp_path: Path) -> None:
    with loopline.Executor(grid.url, "t", values="plain") as executor:
        assert list(executor.map(abs, [-1, 2])) == [1, 2]
        with pytest.raises(CallError, match=r"is refused: it is not plain: it names posix\.mkdir"):
            executor.submit(Evil, tmp_path / "made").result()
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result()
    assert not (tmp_path / "made").exists()
