"""Jobs of functions: which workers may run them, and the content of their runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from loopline_master.core.kernel.index.requirement_class import meets, requirement_class_of
from loopline_master.core.kernel.runs import Runs
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import AttemptId, Function
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import Sweep
from tests.scheduling.driver import Grid, facts

FILE = "sha256:" + "a" * 64


def of_function(**more: Any) -> dict[str, Any]:
    function = {"file": FILE, "python": "3.11", "session": "s"}
    return {"function": function, "requires": {"python": "3.11"}, **more}


@pytest.mark.parametrize(("offered", "fits"), [("3.11", True), ("3.12", False), (None, False)])
def test_function_runs_on_a_worker_with_its_python(offered: str | None, fits: bool) -> None:
    key = requirement_class_of(Requirements(python="3.11"))
    assert meets(replace(facts(), functions=offered), key) is fits
    assert meets(facts(), requirement_class_of(Requirements()))


def test_function_waits_for_a_worker_with_its_python() -> None:
    grid = Grid()
    grid.join("old", replace(facts(), functions="3.10"))
    job = grid.submit(1, requires={"python": "3.11"})
    assert grid.running("old") == []
    grid.join("new", replace(facts(), functions="3.11"))
    assert [attempt.job for attempt in grid.running("new")] == [job]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (of_function(command=["x"]), "either a command or a function"),
        (of_function(requires={}), "requires.python"),
        (of_function(requires={"python": "3.12"}), "requires.python"),
        (of_function(function={"file": FILE, "python": "3.11", "session": "a/b"}), "session"),
        (of_function(function={"file": "abc", "python": "3.11", "session": "s"}), "file"),
        (of_function(function={"file": FILE, "python": "3", "session": "s"}), "python"),
        (of_function(function={"file": FILE, "python": "3.11", "session": "s", "more": 1}), "more"),
    ],
)
def test_invalid_function_is_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        JobSpec.model_validate(given)


def test_session_of_a_function_is_private_to_its_user() -> None:
    spec = JobSpec.model_validate(of_function())

    def function_of(owner: str) -> Function | None:
        return Runs(owner, spec, Sweep(spec), None).run(AttemptId(1, 1, 1)).function

    mine, other = function_of("me"), function_of("you")
    assert isinstance(mine, Function)
    assert isinstance(other, Function)
    assert (mine.file, mine.python) == (FILE, "3.11")
    assert mine.session != other.session
    assert mine == function_of("me")
