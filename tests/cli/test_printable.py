"""Task output cannot control the user's terminal."""

from __future__ import annotations

import pytest

from loopline.cli.common import PLAIN, stderr
from loopline.cli.errors import report
from loopline.cli.render import tables
from loopline.cli.render.printable import Printable, printable
from loopline_shared.errors import LooplineError
from tests.cli import views

SHOWN = [
    ("plain\ttext\r\n", "plain\ttext\r\n"),
    ("\x1b[1;31mred\x1b[0m \x1b[38:5:9mtoo", "\x1b[1;31mred\x1b[0m \x1b[38:5:9mtoo"),
    ("\x1b]0;title\x07", "^[]0;title^G"),
    ("\x1b[2J\x1b[H", "^[[2J^[[H"),
    ("\x9b2J \x7f \x00 \x08", "^[2J ^? ^@ ^H"),
    ("grün, 日本, \u0142", "grün, 日本, \u0142"),
    ("x\u202egnp.exe \u2066 \u061c €\u2026", "x\\u202egnp.exe \\u2066 \\u061c €\u2026"),
]


@pytest.mark.parametrize(("written", "shown"), SHOWN)
def test_a_terminal_gets_colours_and_no_other_control(written: str, shown: str) -> None:
    assert printable(written) == shown


@pytest.mark.parametrize(("written", "shown"), SHOWN)
def test_control_sequences_are_removed_across_pieces(written: str, shown: str) -> None:
    output, content = Printable(), written.encode()
    pieces = [output.add(content[at : at + 1]) for at in range(len(content))]
    assert b"".join([*pieces, output.end()]).decode() == shown


def test_name_cannot_change_the_direction_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    shown = tables.jobs([views.job(name="holiday\u202egnp.exe")])
    PLAIN.show([], lambda: shown)
    stderr().print("\u202egnp.exe")
    report(LooplineError("x", "no job named \u202eexe", "see \u2067"), as_json=False)
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert not set(text) & set("\u202e\u2067")
    assert "holiday\\u202e" in printed.out


def test_text_of_a_worker_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = tables.jobs([views.job(name="\x1b[2J\x1b[31mred\x9b")])
    PLAIN.show([], lambda: shown)
    stderr().print("its lid is \x1b]0;title\x07closed")
    report(LooplineError("x", "no job named \x1b[8mexe", "see \x9b2J"), as_json=False)
    printed = capsys.readouterr()
    assert not set(printed.out + printed.err) & set("\x1b\x07\x9b")
    assert "^[[2J" in printed.out
