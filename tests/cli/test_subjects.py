"""Subjects of commands as users type them."""

from __future__ import annotations

import pytest

from loopline.cli.values import subject_or_worker
from loopline_shared.model import TaskId


@pytest.mark.parametrize(
    ("text", "meant"), [("12", 12), ("12.3", TaskId(12, 3)), ("ant", "ant"), ("pc-12.lab", "pc-12.lab"), ("4a", "4a")]
)
def test_subject_is_a_job_a_task_or_a_worker(text: str, meant: object) -> None:
    assert subject_or_worker(text) == meant


@pytest.mark.parametrize("text", ["", "0", "1.2.3", "a/b", "-x", "a" * 101])
def test_invalid_subject_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|numbered from 1"):
        subject_or_worker(text)
