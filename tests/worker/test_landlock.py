"""Landlock rules: a task reuses those of the previous one only if they grant exactly its permissions."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from loopline_worker.supervisor.walls import landlock
from loopline_worker.supervisor.walls.landlock import Rules

pytestmark = pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "1").mkdir()
    return tmp_path


class CountedRules(Rules):
    """Rules that record their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[dict[str, bool]] = []

    def _make(self, paths: dict[str, bool]) -> None:
        self.made.append(paths)
        super()._make(paths)


def test_a_folder_by_another_name_has_the_same_rules(folder: Path) -> None:
    rules = CountedRules()
    rules.file_for({"/usr": False, str(folder / "1"): True})
    for number in (2, 3):
        (folder / str(number - 1)).rename(folder / str(number))
        rules.file_for({"/usr": False, str(folder / str(number)): True})
    assert len(rules.made) == 1
    assert rules._found.keys() == {"/usr", str(folder / "3")}


@pytest.mark.parametrize(
    "more", [{}, {"1": False}, {"2": False}, {"2": True}, {"1": True, "2": True}, {"none": True}]
)
def test_other_folders_or_rights_get_other_rules(folder: Path, more: dict[str, bool]) -> None:
    """Neither fewer nor more than before."""
    rules = CountedRules()
    (folder / "2").mkdir()
    before, after = {str(folder / "1"): True}, {str(folder / name): writes for name, writes in more.items()}
    rules.file_for(before)
    rules.file_for(after)
    assert rules.made == [before, after]


def test_replaced_file_is_noticed_soon(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = Rules()
    (folder / "file").touch()
    paths = {str(folder / "file"): False}
    rules.file_for(paths)
    (folder / "new").touch()
    (folder / "new").rename(folder / "file")
    later = time.monotonic() + 2.0
    monkeypatch.setattr(landlock.time, "monotonic", lambda: later)
    rules.file_for(paths)
    assert rules._found[str(folder / "file")] == landlock._look(str(folder / "file"))
