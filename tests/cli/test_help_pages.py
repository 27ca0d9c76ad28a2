"""Help pages: the Markdown of docstrings, as text for a terminal."""

from __future__ import annotations

import pytest

from loopline.cli.render.help_pages import formatted


@pytest.mark.parametrize(
    ("docstring", "page"),
    [
        ("Cancel\njobs.", "Cancel jobs."),
        ("Files of `__pycache__`\nare left out.", "Files of __pycache__ are left out."),
        ("First.\n\nSecond\none.", "First.\n\nSecond one."),
        ("So:\n\n    loopline top\n    loopline `x`\n\nOr.", "So:\n\n loopline top\n loopline `x`\n\nOr."),
        ("Names in [client] of a file.", "Names in [client] of a file."),
        ("", ""),
    ],
)  # fmt: skip
def test_paragraphs_are_filled_and_code_keeps_its_lines(docstring: str, page: str) -> None:
    assert formatted(docstring).plain == page


def test_code_has_a_style_of_its_own() -> None:
    text = formatted("Give `--json` for programs.")
    assert [(text.plain[span.start : span.end], span.style) for span in text.spans] == [("--json", "markdown.code")]
