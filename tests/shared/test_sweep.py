"""The n-th task of a sweep, worked out without the others."""

from __future__ import annotations

from glob import escape
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from loopline_shared.job.parameters import Range, Table
from loopline_shared.protocol.templates import fill_text, number_of
from loopline_shared.spec import JobSpec, TaskSpec
from loopline_shared.sweep import Sweep, size_at, task_at
from tests.campaign import PATIENT, tried

values = st.one_of(
    st.lists(st.one_of(st.integers(-9, 9), st.booleans(), st.text("ab", max_size=2)), min_size=1, max_size=4),
    st.builds(lambda first, count: Range(range=[first, first + count]), st.integers(-5, 5), st.integers(0, 3)),
    st.builds(
        lambda first, count: Range(range=[first, first - 2 * count, -2]), st.integers(-5, 5), st.integers(0, 3)
    ),
)
grids = st.dictionaries(st.from_regex(r"\A[a-z_][a-z0-9_]?\Z"), values, min_size=1, max_size=4)


def listed(given: Any) -> list[Any]:
    return [given[place] for place in range(len(given))]


@settings(PATIENT, max_examples=tried(80))
@given(grids)
def test_a_grid_is_the_product_the_last_name_fastest(grid: dict[str, Any]) -> None:
    spec = JobSpec(command=["x"], parameters=grid)
    expected = [dict(zip(grid, chosen, strict=True)) for chosen in product(*map(listed, grid.values()))]
    tasks = [task_at(spec, number).parameters for number in range(1, spec.task_count + 1)]
    assert tasks == expected
    assert [list(task) for task in tasks] == [list(grid)] * len(expected), "names in the order they were written"


def test_a_table_is_its_rows() -> None:
    spec = JobSpec(command=["x", "{a}", "{b}"], parameters=Table(rows=[{"a": 1}, {"a": 2, "b": "two"}]))
    assert [task_at(spec, n).command for n in (1, 2)] == [("x", "1", "{b}"), ("x", "2", "two")]


def test_listed_tasks_take_from_their_job_what_they_leave_out() -> None:
    spec = JobSpec(command=["job", "{i}"], tasks=[TaskSpec(parameters={"i": 7}), TaskSpec(command=["own"])])
    assert [task_at(spec, n).command for n in (1, 2)] == [("job", "7"), ("own",)]
    assert [task_at(spec, n).parameters for n in (1, 2)] == [{"i": 7}, {}]


def test_a_job_without_a_sweep_is_one_task() -> None:
    spec = JobSpec(command=["x", "{i}"])
    assert (task_at(spec, 1).command, task_at(spec, 1).parameters) == (("x", "{i}"), {})


@pytest.mark.parametrize("number", [0, -1, 4, 10**9])
def test_there_are_no_other_tasks(number: int) -> None:
    with pytest.raises(IndexError):
        task_at(JobSpec(command=["x"], parameters={"i": Range(range=[1, 3])}), number)


def test_a_task_of_a_huge_sweep_is_worked_out_alone() -> None:
    spec = JobSpec(command=["{a}-{b}"], parameters={"a": Range(range=[1, 10_000]), "b": Range(range=[1, 10_000])})
    assert task_at(spec, 100_000_000).command == ("10000-10000",)
    assert task_at(spec, 10_001).command == ("2-1",)


@pytest.mark.parametrize(
    ("argument", "filled"),
    [
        ("{n}", "3"),
        ("--n={n}", "--n=3"),
        ("{n}{s}{n}", "3a b3"),
        ("{yes} {no}", "true false"),
        ("{half}", "0.5"),
        ("{one}", "1.0"),
        ("{{n}} {{other}} {{ n }} ${n}", "{n} {{other}} {{ n }} ${n}"),
        ('{"n":{n}}', '{"n":3}'),
        ("${HOME} {} {other} { n } {n.x} {0}", "${HOME} {} {other} { n } {n.x} {0}"),
        ('{"json": [{n}], "s": "{s}"}', '{"json": [3], "s": "a b"}'),
        ("awk '{print $1}'", "awk '{print $1}'"),
        ("{braces}", "{n}"),
        ("%d %s \\{n\\}", "%d %s \\{n\\}"),
    ],
)
def test_names_in_braces_are_filled_in_and_other_braces_stay(argument: str, filled: str) -> None:
    row = {"n": 3, "s": "a b", "yes": True, "no": False, "half": 0.5, "one": 1.0, "braces": "{n}"}
    spec = JobSpec(command=["{n}", argument], parameters=Table(rows=[row]))
    assert task_at(spec, 1).command == ("3", filled)


@settings(PATIENT, max_examples=tried(50))
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30))
def test_an_argument_without_the_names_of_parameters_is_left_alone(argument: str) -> None:
    spec = JobSpec(command=["x", argument], parameters={"a_name_that_is_not_drawn": [1]})
    assert task_at(spec, 1).command == ("x", argument)


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        (JobSpec(command=["x"], parameters={"i": [1, 2]}), [None, None]),
        (JobSpec(command=["x"], parameters={"i": [1, 2, 3, 4]}, size=10), [2.5] * 4),
        (JobSpec(command=["x"], tasks=[TaskSpec(size=1), TaskSpec(size=3)]), [1.0, 3.0]),
        (JobSpec(command=["x"], tasks=[TaskSpec(size=1), TaskSpec()], size=10), [1.0, 5.0]),
        (JobSpec(command=["x"], tasks=[TaskSpec(size=1), TaskSpec()]), [1.0, None]),
    ],
)
def test_the_size_of_a_task_is_its_own_or_an_equal_share(spec: JobSpec, sizes: list[float | None]) -> None:
    assert [size_at(spec, number) for number in range(1, spec.task_count + 1)] == sizes
    assert [task_at(spec, number).size for number in range(1, spec.task_count + 1)] == sizes


@pytest.mark.parametrize(
    ("whole", "sizes", "least"),
    [
        (None, None, 0.0),
        ("unknown", None, 0.0),
        (12.0, None, 4.0),
        (None, [5.0, 2.0, 7.0], 2.0),
        (None, [5.0, None, 7.0], 0.0),
        (12.0, [5.0, None, 7.0], 4.0),
        (3.0, [5.0, 2.0, 7.0], 2.0),
    ],
)
def test_the_smallest_task_is_known_or_may_be_of_any_size(whole: Any, sizes: Any, least: float) -> None:
    if sizes is None:
        spec = JobSpec(command=["x"], parameters={"i": Range(range=[1, 3])}, size=whole)
    else:
        spec = JobSpec(command=["x"], tasks=[TaskSpec(size=size) for size in sizes], size=whole)
    assert Sweep(spec).least == least
    assert all(least <= (size_at(spec, number) or 0.0) for number in range(1, 4))


def test_outputs_and_environment_name_parameters_only() -> None:
    sweep: dict[str, Any] = {"parameters": {"seed": [1, 2]}}
    JobSpec(command=["x"], outputs=["{seed}.csv", "{a,b}_{{x}}"], environment={"A": "{seed} ${HOME} {1}"}, **sweep)
    said = r"the outputs say {sed}, .*: did you mean {seed}\? \(the text itself is written {{sed}}\)"
    for output in ("res_{sed}.csv", {"path": "{sed}", "optional": True}):
        with pytest.raises(ValidationError, match=said):
            JobSpec(command=["x"], outputs=[output], **sweep)
    with pytest.raises(ValidationError, match=r"the environment variables say {x}, .*: the job has none"):
        JobSpec(command=["x"], environment={"A": "{x}"})
    JobSpec(command=["x"], tasks=[{"parameters": {"seed": 1}}], outputs=["{seed}"])


def test_texts_are_filled() -> None:
    assert fill_text("{a}-{{a}}-${a}-{b}-{{b}}", {"a": "{b}"}) == "{b}-{a}-${a}-{b}-{b}"
    assert fill_text("{a}*", {"a": "*"}, quoted=escape) == "[*]*"


@pytest.mark.parametrize(
    ("value", "number"),
    [("3.10", 3.1), ("1e5", 1e5), ("-0", 0), ("12", "12"), ("0.5", "0.5"), ("007", "007"), ("x", "x"), (3, 3)],
)
def test_number_that_was_written_otherwise_is_one_for_programs(value: Any, number: Any) -> None:
    assert number_of(value) == number
    assert type(number_of(value)) is type(number)
