"""The page's links to the manual lead to pages that the manual has."""

from __future__ import annotations

import re

from tests.house.sources import ROOT


def test_manual_has_each_page_that_the_page_links_to() -> None:
    named = re.findall(r'^  \S+: "([\w-]+)",$', (ROOT / "web/src/shell/manual.ts").read_text(), re.MULTILINE)
    for source in (ROOT / "web/src").rglob("*.ts*"):
        named += re.findall(r'\bmanual\((?:[^"()]*\? )?"([\w-]+)"', source.read_text())
    assert {"page", "installing", "failures"} <= set(named)
    missing = [page for page in named if not (ROOT / "docs" / f"{page}.md").exists()]
    assert not missing, f"docs/ has no such page; change web/src/shell/manual.ts: {missing}"
