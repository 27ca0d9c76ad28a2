"""Names of modules, classes and functions: the glossary's words or ordinary ones, and none that were given up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house.sources import ROOT, Source, is_migration, refuse, sources

GLOSSARY = ROOT / "docs" / "design" / "glossary.md"
ORDINARY = Path(__file__).parent / "ordinary_words.txt"
"""Words of English and of programming that mean in a name what they mean anywhere. A new word goes into the glossary
if a reader would have to ask, and here if not."""
DAEMONS_AND_CLIENT = ("loopline_shared", "loopline_master", "loopline_worker", "loopline")
"""The simulator speaks the words of the papers that it models."""

GIVEN_UP = {
    "guard": "supervisor",
    "patron": "listener",
    "speaker": "listener",
    "ticket": "claim",
    "pace": "duration estimate",
    "kinship": "subreaper",
    "sentry": "inotify",
    "wakeup": "selector",
    "relay": "pump",
    "nightfall": "idle timer",
    "consent": "owner policy",
    "ladder": "preemption order",
    "yielding": "owner monitor",
    "desk": "idle detector",
    "sight": "reading",
    "witness": "probe; blocker",
    "diary": "attempt log",
    "crew": "task group",
    "whereabouts": "discovery",
    "lending": "hard links",
    "probation": "quarantine",
    "stranded": "stalled",
    "laden": "backlog",
    "keeper": "retention; listener",
    "endings": "outcome",
    "stories": "job history",
    "heed": "handle",
    "doomed": "to kill",
    "peril": "danger section",
    "hindrance": "pause reason",
    "farewell": "drain",
    "evened": "balanced",
    "foreseen": "predicted",
    "recall": "retract",
}
"""Words of earlier releases, and the field's word in their place. Names of the OpenAPI document stay, for programs
see them; so do those of the models of papers."""


def parts(name: str) -> list[str]:
    """Split snake_case and CamelCase into lower-case words."""
    return [word.lower() for word in re.findall(r"[A-Z]+[0-9]*(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def forms(word: str) -> set[str]:
    """Return the word and what may be its singular."""
    return {word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)}


def named(source: Source, *, functions: bool) -> Iterator[tuple[int, str]]:
    """Yield line and name of the module itself, of its classes, and of its functions where asked for."""
    yield 1, source.module.rpartition(".")[2]
    yield from ((node.lineno, node.name) for node in source.classes())
    if functions:
        yield from ((node.lineno, node.name) for node in source.functions())


@cache
def documented() -> frozenset[str]:
    """Return the names of classes that programs see in the OpenAPI document."""
    return frozenset(json.loads((ROOT / "web" / "openapi.json").read_text("utf-8"))["components"]["schemas"])


def known() -> set[str]:
    rows = re.findall(r"^\| ([^|]+?) +\|", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    glossary = {word for row in rows for word in re.findall(r"[a-z0-9]+", row.lower())}
    return glossary | set(ORDINARY.read_text("utf-8").split())


def test_words_that_were_given_up_are_in_no_name() -> None:
    faults = [
        f"{source.path}:{line}: {name}: {word} is now {GIVEN_UP[word]}"
        for source in sources()
        if not is_migration(source) and source.path.parts[2] != "papers"
        for line, name in named(source, functions=True)
        if name not in documented()
        for part in parts(name)
        for word in forms(part) & set(GIVEN_UP)
    ]
    refuse(faults, "Use the field's word.")


def test_the_noun_of_a_public_name_is_in_the_glossary_or_ordinary() -> None:
    words = known()
    faults = [
        f"{source.path}:{line}: {name}"
        for source in sources(*DAEMONS_AND_CLIENT)
        for line, name in named(source, functions=False)
        if name[0] != "_" and not forms(parts(name)[-1]) & words and name not in documented()
    ]
    refuse(faults, f"Use a word of docs/design/glossary.md, or add the word there or to {ORDINARY.name}.")


def test_no_given_up_word_is_ordinary_or_in_the_glossary() -> None:
    assert not known() & set(GIVEN_UP)


def test_ordinary_words_are_in_use() -> None:
    names = [name for source in sources(*DAEMONS_AND_CLIENT) for _, name in named(source, functions=False)]
    used = {form for name in names for form in forms(parts(name)[-1])}
    refuse(set(ORDINARY.read_text("utf-8").split()) - used, f"Remove them from {ORDINARY.name}.")
