"""Names: those of the cores and of the protocol are in the glossary or ordinary; no name has a word given up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.house.sources import ROOT, Source, is_migration, refuse, sources, tracked

GLOSSARY = ROOT / "docs" / "design" / "glossary.md"
CORES = ("master/loopline_master/core/", "worker/loopline_worker/core/", "shared/loopline_shared/protocol/")
"""The two machines and their messages: the names that a newcomer must learn first."""
ROOMS = ("master/loopline_master", "master/loopline_master/core", "worker/loopline_worker")
"""Folders whose entries must all be explained; elsewhere names say enough."""
NAMED_BY_VERBS = {
    "events.py",
    "kernel_events.py",
    "effects.py",
    "instructions.py",
    "worker_link.py",
    "client_link.py",
}
"""Files of events, named in the past tense, of instructions, which are imperatives, and of messages: both."""
POLICIES = "master/loopline_master/core/policies/"
"""A policy is called as in docs/policies.md."""
ORDINARY = {
    *("admission", "chance", "collection", "decision", "dependent", "eligibility", "estimate", "explain", "figure"),
    *("forecast", "history", "hours", "invariant", "inventory", "learning", "lifecycle", "lognormal", "note"),
    *("check", "measure", "mismatch", "outbox", "phrase", "purpose", "row", "queue", "ranking", "record", "request"),
    *("placer", "rule", "scheduler", "settings", "sign", "state", "transition", "trust"),
    *("unknown", "vote", "chunk", "cost", "fetching", "file", "measured", "message", "place", "protocol", "range"),
}
"""Words that mean in a name what they mean in any program."""

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
"""Words that the field does not use, and the field's word in their place. The models of papers keep their own."""


VAGUE = {"take", "take_back"}
"""Function names too vague to say what is done."""


def parts(name: str) -> list[str]:
    """Split snake_case and CamelCase into lower-case words."""
    return [word.lower() for word in re.findall(r"[A-Z]+[0-9]*(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def forms(word: str) -> set[str]:
    """Return the word and its possible singulars."""
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


def glossary() -> set[str]:
    rows = re.findall(r"^- \*\*(.+?)\*\*", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    return {word for row in rows for word in re.findall(r"[a-z0-9]+", row.lower())}


def nouns() -> Iterator[tuple[str, str]]:
    """Yield place and last word of each public name in the cores."""
    for source in sources():
        path = str(source.path)
        if path.startswith(CORES) and source.path.name not in NAMED_BY_VERBS and not path.startswith(POLICIES):
            for line, name in named(source, functions=False):
                if name[0] != "_" and name not in documented():
                    yield f"{path}:{line}: {name}", parts(name)[-1]


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


def test_no_function_has_a_vague_name() -> None:
    faults = [
        f"{source.path}:{function.lineno}: {function.name}"
        for source in sources()
        for function in source.functions()
        if function.name.strip("_") in VAGUE
    ]
    refuse(faults, "Say what is done: pop, occupy, receive, read_result.")


def test_the_noun_of_a_name_in_the_cores_is_in_the_glossary_or_ordinary() -> None:
    words = glossary() | ORDINARY
    faults = [place for place, noun in nouns() if not forms(noun) & words]
    refuse(faults, "Use a word of docs/design/glossary.md; or add it there, or to ORDINARY.")


@pytest.mark.parametrize("inside", ROOMS)
def test_architecture_page_explains_each_room(inside: str) -> None:
    page = (ROOT / "docs" / "design" / "architecture.md").read_text("utf-8")
    rooms = {Path(path).relative_to(inside).parts[0] for path in tracked() if Path(path).is_relative_to(inside)}
    named = {
        room if room.endswith(".py") else f"{room}/" for room in rooms if not room.startswith(("__", "py.typed"))
    }
    missing = [room for room in named if not re.search(rf"(?<![\w/]){re.escape(room)}", page)]
    refuse(missing, f"Give each room of {inside} a line on docs/design/architecture.md.")


def test_no_given_up_word_is_ordinary_or_in_the_glossary() -> None:
    assert not (glossary() | ORDINARY) & set(GIVEN_UP)


def test_ordinary_words_are_in_use_and_few() -> None:
    used = {form for _, noun in nouns() for form in forms(noun)}
    refuse(ORDINARY - used, "Remove them from ORDINARY.")
    refuse(ORDINARY & glossary(), "They are in the glossary: remove them from ORDINARY.")
    assert len(ORDINARY) <= 60
