"""Pages and files that the code and the developers' pages name are there."""

from __future__ import annotations

import io
import posixpath
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.house.sources import PACKAGES, ROOT, Source, refuse, sources, tracked
from tests.house.test_docstrings import docstrings

PAGE = re.compile(r"(?<![\w/.-])[\w./-]*\w\.md\b")
PAGES = sorted(path for path in tracked() if path.startswith("docs/design/") and path.endswith(".md"))
NAMES_FILES = [*PAGES, "CONTRIBUTING.md"]
OF_READERS = sorted(
    path
    for path in tracked()
    if path.endswith(".md")
    and path not in {*NAMES_FILES, "CHANGELOG.md"}
    and not path.startswith("web/node_modules/")
)
OF_USERS = {"random.py"}
"""Names of files that users may have."""
OF_THE_MANUAL = {"docs/commands.md", "docs/rest.md", "docs/messages.md", "docs/changes.md"}
"""Pages that docs/manual.py makes when the manual is built."""
ROOTS = (*PACKAGES.values(), "tests", "docs", "web", "benchmarks", "examples")
FILE = re.compile(r"(?<![\w/.<>*-])((?:[\w-]+/)*[\w-]+\.(?:py|md|ts|tsx|sql|json|txt|service)\b)(?![\w/*]|\.\w)")
FOLDER = re.compile(rf"(?<![\w/.-])((?:{'|'.join(ROOTS)})/(?:[\w.-]+/)*)(?![\w.<*-])")


def test_pages_that_docstrings_and_comments_name_are_there() -> None:
    faults = [
        f"{place}: {page}"
        for source in sources()
        for place, text in (*_comments(source.path, source.text), *_of_docstrings(source))
        for page in PAGE.findall(text)
        if page not in tracked()
    ]
    refuse(set(faults), "Name a page from the root of the repository, as docs/design/x.md.")


def test_files_that_docstrings_and_comments_name_are_there() -> None:
    faults = [
        f"{place}: {name}"
        for source in sources()
        for place, text in (*_comments(source.path, source.text), *_of_docstrings(source))
        for name in FILE.findall(text)
        if name.endswith(".py") and not _is_file(str(source.path), name) and name not in OF_USERS
    ]
    refuse(set(faults), "Name the file as it is called now.")


@cache
def _comments(path: Path, text: str) -> list[tuple[str, str]]:
    if not any(FILE.search(line.partition("#")[2]) for line in text.splitlines()):
        return []  # to read tokens takes long
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [(f"{path}:{token.start[0]}", token.string) for token in tokens if token.type == tokenize.COMMENT]


def _of_docstrings(source: Source) -> Iterator[tuple[str, str]]:
    return ((source.at(node, "docstring"), text) for node, text in docstrings(source))


@pytest.mark.parametrize("page", NAMES_FILES)
def test_files_that_a_developers_page_names_are_there(page: str) -> None:
    """A file may be named by the end of its path, such as core/scheduler.py, if that is enough to find one."""
    faults = []
    for number, line in enumerate((ROOT / page).read_text("utf-8").splitlines(), 1):
        faults += [f"{page}:{number}: {name}" for name in FILE.findall(line) if not _is_file(page, name)]
        faults += [f"{page}:{number}: {name}" for name in FOLDER.findall(line) if not _is_folder(name)]
    refuse(faults, "Name a file that is there; write <name> for the part of a path that may vary.")


@pytest.mark.parametrize("page", OF_READERS)
def test_files_that_any_other_page_names_from_the_root_are_there(page: str) -> None:
    """These pages name files of users, too; so a name counts if it begins with a folder of the repository."""
    text = (ROOT / page).read_text("utf-8")
    named = {name for name in FILE.findall(text) if name.startswith(tuple(f"{root}/" for root in ROOTS))}
    faults = {f"{page}: {name}" for name in named if not _is_file(page, name)}
    faults |= {f"{page}: {name}" for name in FOLDER.findall(text) if not _is_folder(name)}
    refuse(faults, "Name a file that is there; write <name> for the part of a path that may vary.")


def _is_file(page: str, name: str) -> bool:
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(page), name))
    return beside in tracked() or _has_end(name)


@cache
def _has_end(name: str) -> bool:
    """True if a path is this or ends with it."""
    return any(path == name or path.endswith(f"/{name}") for path in tracked())


@cache
def _is_folder(name: str) -> bool:
    return any(path.startswith(name) for path in tracked())


def test_links_between_the_pages_lead_somewhere() -> None:
    faults = []
    for page in (path for path in tracked() if path.endswith(".md") and not path.startswith(("web/node", "."))):
        for target in re.findall(r"\]\(([^)#\s]+)", (ROOT / page).read_text("utf-8")):
            resolved = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
            if "://" in target or target.startswith("mailto:") or resolved in OF_THE_MANUAL:
                continue
            if not (ROOT / resolved).exists():
                faults.append(f"{page}: {target}")
    refuse(faults, "Mend the link.")
