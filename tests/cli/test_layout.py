"""Local places of a task's files: never outside the folder that the user named."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.transfer.layout import DEFAULT, Layout, LayoutError


@pytest.mark.parametrize(
    ("template", "folder"),
    [
        (DEFAULT, "3"),
        ("{lr}/{seed}/", "0.1/7"),
        ("run-{job}.{task}", "run-12.3"),
        ("{name}", "a_b"),
        ("{flag}/{lr}", "true/0.1"),
    ],
)
def test_template_is_filled_with_parameters(template: str, folder: str) -> None:
    parameters = {"lr": 0.1, "seed": 7, "name": "a/b", "flag": True}
    assert Layout(template).folder(12, 3, parameters) == folder


@pytest.mark.parametrize("template", ["", "/", "/tmp/{x}", "../{x}", "{x}/../..", "a//b", "./x"])
def test_template_that_leaves_the_folder_is_refused(template: str) -> None:
    with pytest.raises(LayoutError):
        Layout(template)


@given(st.text(max_size=40) | st.sampled_from(["..", ".", "", "...", "/etc", "C:", "a\\b", "..\\x", "con."]))
def test_no_value_leaves_the_folder(value: str) -> None:
    folder = Layout("x/{name}").folder(1, 1, {"name": value})
    for pure in (PurePosixPath, PureWindowsPath):
        assert pure(folder).parts[0] == "x"
        assert len(pure(folder).parts) == 2
        assert ".." not in pure(folder).parts
        assert not pure(folder).is_absolute()


def test_unknown_parameters_and_shared_folders_are_refused() -> None:
    layout = Layout("{lr}")
    assert layout.needs_parameters
    assert not Layout("{job}/{task}").needs_parameters
    with pytest.raises(LayoutError, match="names lr, but the tasks have only: job, seed, task"):
        layout.folder(1, 1, {"seed": 1})
    layout.folder(1, 1, {"lr": 0.1})
    assert layout.folder(1, 1, {"lr": 0.1}) == "0.1"
    with pytest.raises(LayoutError, match=r"tasks 1 and 2 would both go to 0\.1/"):
        layout.folder(1, 2, {"lr": 0.1})
