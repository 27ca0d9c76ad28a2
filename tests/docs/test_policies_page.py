"""The policies that docs/policies.md writes in front of the reader work as they stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from loopline_master.core.policies import COMPARED, REGISTRY, TaskFirst, WorkerFirst
from tests.scheduling.contract import CONTRACT
from tests.scheduling.driver import Grid, facts

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
KINDS = {"shortest-first": WorkerFirst, "packed": TaskFirst}


@pytest.fixture(params=KINDS)
def example(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of one policy of the page, which stands in the registry as long as the test runs."""
    name = request.param
    written = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (code,) = (each for each in written if f'@register("{name}")' in each)
    assert len(code.splitlines()) <= 30
    module = ModuleType(name)
    exec(compile(code, "docs/policies.md", "exec"), vars(module))
    yield name
    del REGISTRY[name]


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
def test_the_examples_keep_the_contract(example: str, clause) -> None:
    clause(example)


def test_the_page_shows_one_of_each_kind(example: str) -> None:
    assert issubclass(REGISTRY[example], KINDS[example])


def test_the_examples_do_what_the_page_says(example: str) -> None:
    grid = Grid(policy=example, lease_s=1e6)
    if example == "shortest-first":
        grid.submit(9, 9.0)
        short = grid.submit(2, 9.0)
        grid.join("a")
        assert [attempt.job for attempt in grid.running("a")] == [short]
    else:
        grid.join("a", facts(4))
        grid.join("b", facts(2))
        grid.submit(3, 3.0)
        assert (len(grid.running("a")), len(grid.running("b"))) == (1, 2)


def test_every_policy_is_described() -> None:
    described = set(re.findall(r"^\| `([a-z-]+)`", PAGE.read_text("utf-8"), re.MULTILINE))
    assert described == REGISTRY.keys() | COMPARED.keys()
