"""The man pages have the text of the help, and groff formats them without warnings."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from docs import man_pages


def rendered(text: str) -> str:
    command = ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", "-rLL=200n"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@pytest.mark.parametrize("words", [(), ("fetch",), ("worker",)])
def test_page_has_each_line_of_the_help(words: tuple[str, ...]) -> None:
    shown = man_pages.help_of(*words)
    name = "-".join(("loopline", *words))
    page = rendered(man_pages.page(name, "Do something.", shown))
    assert f"{name} - do something" in page
    options = [line.split()[1] for line in shown.splitlines() if line.startswith("│ --")]
    assert all(option in page for option in options)
    assert "EXIT STATUS" in page or words == ("worker",)
    assert "│" not in page


def test_roff_prints_text_as_it_is() -> None:
    assert man_pages._escaped(r".a\b --c") == r"\&.a\eb \-\-c"
