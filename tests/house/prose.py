"""Counts sentences with a private turn of phrase, by folder: docstrings, comments, test names and documentation.

    python -m tests.house.prose              the sentences, the folder with most of them last
    python -m tests.house.prose FOLDER       those of one folder
    python -m tests.house.prose --record     write the counts down: they may only fall

The rules find phrases that our code used to have and that other code has not. They have false alarms: 1 to 2 % of the
sentences of any project. A folder is rewritten by reading it, and its count is lowered then.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house.sources import ROOT, tracked

RECORD = Path(__file__).with_name("prose.json")
RULES = (
    r"(?:^|[.,;:(] |\b(?:of|by|with|from|to|for|in|on|and|or|that|as|if|is|are|than|has|had|takes?|says?|knows?"
    r"|finds?|keeps?|returns?) )(?:what|whatever|whoever|who) [a-z]",
    r"\b(?:of|in|by|for|to|from|at|with|on|behind|before|after) (?:which|whom|whose)\b",
    r"\b(?:those|ones?|all|none|nothing|anything|another) (?:that|who|which)\b",
    r"\b[Ss]o (?:many|much|long|far|often)\b(?! as\b)",
    r"\b(?:told|hears?|heard|befalls?|deeds?|dear|mend(?:ed|s)?|nought|whereabouts|looked at|looks? after|stands? "
    r"(?:still|ready)|goes on|gone on|let go|anew|afresh|meanwhile|in vain|for want of|somebody|nobody)\b",
)
_RULE = re.compile("|".join(RULES))
_STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""|'
    r"'''(?:\\.|[^\\])*?'''|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'(?:\\.|[^'\\\n])*'|#[^\n]*",
    re.DOTALL,
)
"""As tokenize finds them, in a tenth of the time."""
_DEPTH = {"docs": 1, "tests": 2}
"""Folders of a path that name its room; 3 elsewhere, such as worker/loopline_worker/peers."""


@cache
def counts() -> dict[str, int]:
    """Return how many sentences of each room have such a phrase."""
    found = Counter(room for room, _, _ in hits())
    return dict(sorted(found.items()))


def hits() -> Iterator[tuple[str, str, str]]:
    """Yield room, place and sentence."""
    for path in sorted(tracked()):
        if not path.endswith((".py", ".md")) or path.startswith((".ci", "CHANGELOG")):
            continue
        text = (ROOT / path).read_text("utf-8")
        for line, prose in _of_python(text) if path.endswith(".py") else [(1, _without_code(text))]:
            for sentence in _sentences(prose):
                if _RULE.search(sentence):
                    yield _room(path), f"{path}:{line}", sentence


def _room(path: str) -> str:
    folders = path.split("/")[:-1]
    return "/".join(folders[: _DEPTH.get(folders[0], 3)]) if folders else "."


def _sentences(text: str) -> list[str]:
    text = re.sub(r"``[^`]*``|`[^`]*`", "X", re.sub(r"\s+", " ", text))
    return [sentence for sentence in re.split(r"(?<=[.!?])\s+", text) if len(sentence.split()) >= 3]


def _without_code(markdown: str) -> str:
    return re.sub(r"```.*?```|^\|.*$", " ", markdown, flags=re.DOTALL | re.MULTILINE)


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    for node in _statements(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test_"):
                yield node.lineno, node.name.removeprefix("test_").replace("_", " ")
        elif (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value  # a docstring, also of a constant
    for found in _STRING_OR_COMMENT.finditer(text):
        if found[0].startswith("#") and len(found[0]) > 8:
            yield text.count("\n", 0, found.start()) + 1, found[0].lstrip("# ")


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        for node in getattr(tree, name, ()) if not isinstance(tree, ast.expr) else ():
            yield node
            yield from _statements(node)


def main() -> None:
    """Run the command."""
    if sys.argv[1:] == ["--record"]:
        RECORD.write_text(json.dumps(counts(), indent=1) + "\n", "utf-8")
        return
    found = [hit for hit in hits() if not sys.argv[1:] or hit[1].startswith(sys.argv[1])]
    total = Counter(room for room, _, _ in found)
    for room, place, sentence in sorted(found, key=lambda hit: (total[hit[0]], hit)):
        print(f"{room} ({total[room]})  {place}: {sentence}")


if __name__ == "__main__":
    main()
