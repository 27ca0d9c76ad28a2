"""The policy that docs/policies.md writes in front of the reader works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from loopline_master.core.policies import REGISTRY, Policy
from tests.scheduling.contract import CONTRACT

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> str:
    text = PAGE.read_text("utf-8")
    code = re.search(r"```python\n(\"\"\"Shortest.*?)```", text, re.DOTALL)
    assert code is not None
    assert len(code[1].splitlines()) <= 30
    module = ModuleType("shortest_first")
    exec(compile(code[1], "docs/policies.md", "exec"), vars(module))
    monkeypatch.setitem(REGISTRY, "shortest-first", Policy(module.plan))  # type: ignore[arg-type]
    return "shortest-first"


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
def test_the_example_keeps_the_contract(example: str, clause) -> None:
    clause(example)


def test_every_policy_is_described() -> None:
    described = set(re.findall(r"^\| `([a-z-]+)`", PAGE.read_text("utf-8"), re.MULTILINE))
    assert described == set(REGISTRY)
