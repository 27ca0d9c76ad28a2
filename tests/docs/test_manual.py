"""The manual: every page in its place, every link leads somewhere, generated pages name what the code has."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml

from loopline.cli.app import COMMANDS
from loopline_master.http.routes import all_operations

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))
import reference_pages  # noqa: E402 - beside the pages that it makes

GENERATED = {"commands.md", "rest.md", "messages.md", "changes.md"}
PAGES = [*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def pages_of(entry: object) -> list[str]:
    match entry:
        case str(page):
            return [page]
        case dict():
            return [page for value in entry.values() for page in pages_of(value)]
        case list():
            return [page for part in entry for page in pages_of(part)]
    raise AssertionError(entry)


@cache
def anchors(page: Path) -> set[str]:
    """Return the names of the headings of a page, as the manual and the source's browser form them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip()) for heading in plain}


def test_every_page_stands_once_in_the_manual() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    listed = pages_of(nav)
    assert len(listed) == len(set(listed))
    assert set(listed) == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | GENERATED


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in LINK.findall(text):
        place, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", place) or (page.parent == DOCS and place in GENERATED):
            continue
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


def test_the_reference_has_every_command_and_every_operation() -> None:
    commands, rest = reference_pages.commands(), reference_pages.rest()
    assert [name for name in COMMANDS if f"### loopline {name} {{#{name}}}" not in commands] == []
    documented = [operation for operation in all_operations() if operation.is_documented]
    assert rest.count("\n### `") == len(documented)
    assert "--max-fails" in commands


def test_the_page_of_messages_has_the_words_that_users_see_and_the_next_step() -> None:
    page = reference_pages.messages()
    step = "free some space on it, then try again"
    assert f"**the master's disk has no room for this file**  \nNext step: {step}." in page
    assert page.count("Next step: ") > 90
