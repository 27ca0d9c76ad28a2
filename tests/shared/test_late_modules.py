"""Late modules: executed once, at the first use of an attribute, whichever thread uses it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import ModuleType

import pytest

from loopline_shared.terminal import late_modules

NAME = "late_module_of_this_test"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """Return a late module that notes each execution in a file."""
    runs = f"open({str(tmp_path / 'runs')!r}, 'a').write('.')"
    (tmp_path / f"{NAME}.py").write_text(f"import {NAME}\n{runs}\nvalue = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    late_modules.declare(NAME)
    yield __import__(NAME)
    del sys.modules[NAME]


def test_module_is_executed_at_its_first_use(module: ModuleType, tmp_path: Path) -> None:
    assert __import__(NAME) is module
    assert not (tmp_path / "runs").exists()
    from late_module_of_this_test import value  # type: ignore[import-not-found]

    assert (value, module.value) == (7, 7)
    with pytest.raises(AttributeError, match=f"'{NAME}' has no attribute 'other'"):
        module.other  # noqa: B018
    assert (tmp_path / "runs").read_text() == "."


def test_threads_see_a_whole_module(module: ModuleType, tmp_path: Path) -> None:
    barrier = Barrier(8)

    def use() -> int:
        barrier.wait()
        value: int = module.value
        return value

    with ThreadPoolExecutor(8) as pool:
        assert {future.result() for future in [pool.submit(use) for _ in range(8)]} == {7}
    assert (tmp_path / "runs").read_text() == "."


def test_failed_execution_is_tried_again_and_names_its_cause(module: ModuleType, tmp_path: Path) -> None:
    """An interruption, or a library that is broken, must not look like a missing name at the next use."""
    source = tmp_path / f"{NAME}.py"
    works = source.read_text()
    for broken, error in (("raise OSError('the disk')", OSError), ("import sys; sys.nothing", ImportError)):
        source.write_text(broken)
        for _ in range(2):
            with pytest.raises(error):
                module.value  # noqa: B018
    source.write_text(works)
    assert module.value == 7
