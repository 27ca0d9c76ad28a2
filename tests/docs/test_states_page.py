"""The diagrams in the docs agree with the scheduler's transition tables."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_it_is_up_to_date() -> None:
    generated = runpy.run_path(str(DOCS / "states.py"))["page"]()
    assert (DOCS / "states.md").read_text("utf-8") == generated, "run: python docs/states.py"
