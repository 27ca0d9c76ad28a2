"""From a command line to the job sent to the master."""

import re
from pathlib import Path
from typing import Any

import pytest

from loopline_shared.rest.bodies import PlanView, Submission
from loopline_shared.spec import JobSpec
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, ok

CASES: list[tuple[list[str], dict[str, Any]]] = [
    (["--", "/opt/bin/pi"], {"name": "pi", "command": ["/opt/bin/pi"]}),
    (
        ["--name", "sweep", "--size", "2h", "--", "./train", "--seed={seed}", "--", "--json", "--wait"],
        {"name": "sweep", "size": 7200.0, "command": ["./train", "--seed={seed}", "--", "--json", "--wait"]},
    ),
    (
        ["--param", "seed=1..100", "--param", "lr=0.1,0.01", "--", "t"],
        {"parameters": {"seed": {"range": [1, 100]}, "lr": [0.1, 0.01]}},
    ),
    (
        ["--array", "1-1000:2", "--param", "mode='a,b',c", "--", "t"],
        {"parameters": {"index": {"range": [1, 1000, 2]}, "mode": ["a,b", "c"]}},
    ),
    (
        ["--os", "linux", "--memory", "2GB", "--label", "matlab", "--label", "gpu", "--slots", "2", "--", "t"],
        {"requires": {"os": "linux", "memory_bytes": 2_000_000_000, "labels": ["matlab", "gpu"], "slots": 2}},
    ),
    (["--exclusive", "--", "t"], {"requires": {"exclusive": True}}),
    (["--network", "--", "t"], {"requires": {"network": True}}),
    (["--gpus", "2", "--need", "matlab", "--", "t"], {"requires": {"gpus": 2, "needs": {"matlab": 1}}}),
    (
        ["--gpu-memory", "8GB", "--gpu-model", "A4000", "--gpu-capability", "8.0", "--", "t"],
        {"requires": {"gpus": 1, "gpu_memory_bytes": 8 * 10**9, "gpu_model": "A4000", "gpu_capability": "8.0"}},
    ),
    (
        ["--timeout", "10m", "--max-attempts", "5", "--max-replicas", "unlimited", "--", "t"],
        {"timeout_s": 600.0, "max_attempts": 5, "max_replicas": "unlimited"},
    ),
    (["--max-replicas", "1", "--", "t"], {"max_replicas": 1}),
    (["--env", "A=1", "--env", "B=x=y", "--", "t"], {"environment": {"A": "1", "B": "x=y"}}),
    (["plain", "words"], {"name": "plain", "command": ["plain", "words"]}),
    (["--size", "unknown", "--folder", "/home/ann/pi", "--", "t"], {"size": "unknown", "folder": "/home/ann/pi"}),
]


@pytest.mark.parametrize(("words", "document"), CASES)
def test_command_line_is_converted_to_a_job(
    fake: FakeMaster, run: Run, words: list[str], document: dict[str, Any]
) -> None:
    fake.on("POST /jobs", ok(Submission(id=1, task_count=1), 201))
    ran = run("submit", *words)
    assert (ran.code, ran.out) == (0, "job 1 submitted: 1 task\n"), ran.err
    expected = {"name": "t", "command": ["t"], "folder": Path.cwd().as_posix()} | document
    assert fake.seen[0].body == expected
    JobSpec.model_validate(fake.seen[0].body)


def test_receipt_shows_notes_without_calling_them_warnings(fake: FakeMaster, run: Run) -> None:
    fake.on("POST /jobs", ok(Submission(id=1, task_count=1, notes=["no size: later jobs may finish first"]), 201))
    ran = run("submit", "--", "t")
    assert ran.out == "job 1 submitted: 1 task\nno size: later jobs may finish first\n"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"kind": "promise", "machines": ["ant", "bee"]}, r"promised start: .{25} on ant, bee  for 1m"),
        (
            {"kind": "estimate", "machines": [], "p50_at": 1e9},
            r"estimated start: .{25}, as likely as not by .{25} on 2 workers not chosen yet  for 1m",
        ),
    ],
)
def test_the_receipt_says_when_and_where_a_gang_starts(
    fake: FakeMaster, run: Run, told: dict[str, Any], said: str
) -> None:
    known = {"task": 1, "start_at": 1e9, "slots": 1, "limit_s": 60, "limit_is_given": True, "told_at": 1e9}
    plan = PlanView.model_validate(known | {"first_start_at": None} | told)
    fake.on("POST /jobs", ok(Submission(id=1, task_count=1, plan=plan), 201))
    ran = run("submit", "--nodes", "2", "--", "t")
    assert re.fullmatch(f"job 1 submitted: 1 task\n{said}\n", ran.out), ran.out


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (
            ["./train", "--timeout", "5", "--output", "x", "data"],
            ["./train", "--timeout", "5", "--output", "x", "data"],
        ),
        (["--timeout", "5", "--zip", "./train", "--size", "--", "-x"], ["./train", "--size", "--", "-x"]),
        (["--timeout=5", "./train", "--json"], ["./train", "--json"]),
        (["--", "--json"], ["--json"]),
    ],
)
def test_options_after_the_commands_first_word_belong_to_it(
    fake: FakeMaster, run: Run, words: list[str], command: list[str]
) -> None:
    fake.on("POST /jobs", ok(Submission(id=1, task_count=1), 201))
    assert run("submit", *words).code == 0
    assert fake.seen[-1].body["command"] == command
    assert fake.seen[-1].body.get("outputs", []) == []


def test_memory_without_its_unit_is_refused(run: Run) -> None:
    ran = run("submit", "--memory", "500", "--", "true")
    assert ran.code == 2
    assert "500 is 500 bytes, and no program runs in less than 1 MiB: did you mean 500MB?" in ran.err
