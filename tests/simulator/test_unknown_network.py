"""One file over a network without a description, in virtual time, learnt by the live code."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from loopline_simulator.__main__ import main
from loopline_simulator.papers.data_transfer.unknown_trial import KNOWN, UnknownAnswer, UnknownCase, run

CASE = UnknownCase(seed=0, known=KNOWN[1], hosts=8, switches=2, size_mb=40.0, edge=100.0, between=25.0)


def known(how: str, **changes: float) -> UnknownAnswer:
    return run(replace(CASE, known=how, **changes))  # type: ignore[arg-type]


def test_a_narrow_cable_is_found_while_the_first_file_crosses_it() -> None:
    """Names say nothing of the place. Without learning, the one line crosses the cable until its end."""
    written, learnt, assumed = map(known, KNOWN)
    assert written.ratio < 1.1
    assert learnt.ratio < 1.2
    assert learnt.copies < 1.1
    assert assumed.ratio > 2.0


def test_several_narrow_cables_are_found_while_the_first_file_crosses_them() -> None:
    learnt = [
        known(KNOWN[1], hosts=16, switches=3, size_mb=100.0, edge=1000.0, between=100.0, seed=seed)
        for seed in range(3)
    ]
    assert max(one.ratio for one in learnt) < 1.4


def test_the_same_case_gives_the_same_figures() -> None:
    one, other = known(KNOWN[1], size_mb=10.0), known(KNOWN[1], size_mb=10.0)
    assert replace(one, took_s=0.0) == replace(other, took_s=0.0)


def test_looking_for_narrow_cables_where_there_are_none_costs_less_than_a_second() -> None:
    assert known(KNOWN[1], between=10_000.0).last_s < known(KNOWN[0], between=10_000.0).last_s + 1.0


def test_the_command_tells_what_each_run_found(capsys: pytest.CaptureFixture[str]) -> None:
    words = "transfer --unknown --hosts 4 --switches 2 --size-mb 5 --seeds 1 --processes 1"
    assert main([*words.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["unknown"]
    assert [one["known"] for one in found] == list(KNOWN)
    assert main(words.split()) == 0
    assert KNOWN[1] in capsys.readouterr().out
