"""The form of a docstring: it begins with a verb or the thing itself, and its first sentence is short and plain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.sources import Source, refuse, sources

OPENINGS = {
    *("What", "Whether", "One", "It", "Its", "Those", "Until", "Where", "Who", "Whoever", "Whatever"),
    *("How", "Why", "If", "As"),
}
"""Words that put off or leave out what the sentence is about."""
DENIALS = {"no", "not", "never", "nobody", "nothing", "none", "without"}
MOST_DENIALS, MOST_WORDS = 1, 25


def docstrings(source: Source) -> Iterator[tuple[ast.AST, str]]:
    for node in source.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield (node.body[0] if isinstance(node, ast.Module) else node), text


def first_sentence(text: str) -> str:
    """Return what comes before the first full stop, which white space or the end follows."""
    return re.split(r"\.(?:\s|$)|\n\s*\n", text, maxsplit=1)[0]


def faults(text: str) -> Iterator[str]:
    sentence = first_sentence(text)
    words = re.findall(r"[^\s]+", sentence)
    opening = re.match(r"\W*(\w+)", sentence)
    if opening and opening[1] in OPENINGS:
        yield f"opens with {opening[1]!r}"
    denials = [
        word
        for word in re.findall(r"[A-Za-z]+(?:-[A-Za-z]+)*", sentence)
        if word != "None" and word.lower() in DENIALS
    ]
    if len(denials) > MOST_DENIALS:
        yield f"denies {len(denials)} times: {', '.join(denials)}"
    if len(words) > MOST_WORDS:
        yield f"has {len(words)} words in its first sentence, at most {MOST_WORDS}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Return the worker's name.", []),
        ("None if the task is unknown to no one.", []),
        ("Simulate no-passing round robin, which lets no job pass.", []),
        ("Tasks queued at one supervisor, oldest first. What follows may be longer.", []),
        ("What it was lent.", ["opens with 'What'"]),
        ("It waits, where nobody is there and nothing runs.", ["opens with 'It'", "denies 2 times: nobody, nothing"]),
        ("Read " + "very " * 25 + "much.", ["has 27 words in its first sentence, at most 25"]),
        ("Read loopline.toml of this folder.\n\n" + "A long text without end " * 10, []),
    ],
)
def test_the_rule_itself(text: str, expected: list[str]) -> None:
    assert list(faults(text)) == expected


def test_docstrings_have_the_form_of_the_house() -> None:
    found = [
        source.at(node, f"{fault}: {first_sentence(text)[:60]!r}")
        for source in sources()
        for node, text in docstrings(source)
        for fault in faults(text)
    ]
    refuse(found, 'Begin with a verb ("Return ...") or the thing itself; one denial; 25 words before the full stop.')
