"""Jobs in files: three equivalent formats, and errors with their positions."""

from __future__ import annotations

import io
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.cli.submission import job_file
from loopline.cli.submission.positions import ParseError, find_in_toml, read_yaml
from loopline_shared.rest.bodies import Submission
from loopline_shared.spec import JobSpec
from tests.campaign import tried
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, ok

YAML = """\
# a fit for every seed
name: fit
command: [python3, fit.py, --seed, "{seed}"]
parameters:
  seed: 1..100
  lr: [1e-3, 0.1]
  mode: [on, off, 007]
size: 2h
requires:
  os: linux
  memory_bytes: 2GB
timeout_s: 10m
environment: {A: "1", B: "2"}
"""
TOML = """\
name = "fit"
command = ["python3", "fit.py", "--seed", "{seed}"]
size = 7200
timeout_s = 600
[parameters]
seed = {range = [1, 100]}
lr = [1e-3, 0.1]
mode = ["on", "off", "007"]
[requires]
os = "linux"
memory_bytes = 2_000_000_000
[environment]
A = "1"
B = "2"
"""
JSON = """\
{"name": "fit", "command": ["python3", "fit.py", "--seed", "{seed}"],
 "parameters": {"seed": {"range": [1, 100]}, "lr": [1e-3, 0.1], "mode": ["on", "off", "007"]},
 "size": "2h", "timeout_s": 600, "requires": {"os": "linux", "memory_bytes": "2GB"},
 "environment": {"A": "1", "B": "2"}}
"""
DOCUMENT = {
    "name": "fit",
    "command": ["python3", "fit.py", "--seed", "{seed}"],
    "parameters": {"seed": {"range": [1, 100]}, "lr": ["1e-3", 0.1], "mode": ["on", "off", "007"]},
    "size": 7200.0,
    "requires": {"os": "linux", "memory_bytes": 2_000_000_000},
    "timeout_s": 600.0,
    "environment": {"A": "1", "B": "2"},
}

MISTAKES: list[tuple[str, str, str]] = [
    (
        ".yaml",
        "command: [t]\nsiez: 3\n",
        "job.yaml:2:1: siez: there is no such key: did you mean size?\n    2 | siez: 3\n      | ^",
    ),
    (
        ".yaml",
        "command: [t]\nsize: long\n",
        "job.yaml:2:1: size: expected a duration such as 90s, 10m or 1h30m, got 'long'",
    ),
    (
        ".yaml",
        "command: [t]\nparameters:\n  a: [1, [2]]\n",
        "job.yaml:3:10: parameters.a.1: expected a text",
    ),
    (
        ".yaml",
        "command: [t]\nparameters:\n  a: {range: [9, 1]}\n",
        "job.yaml:3:7: parameters.a.range: the range [9, 1] is empty",
    ),
    (
        ".yaml",
        "command: [t]\nparameters:\n  a: 1.5..3\n",
        "job.yaml:3:3: parameters.a: a range of fractions has a step",
    ),
    (".yaml", "command: [t]\n  size: 3\n", "job.yaml:2:3: expected <block end>"),
    (".yaml", "command: [t]\nsize: 1\nsize: 2\n", "job.yaml:3:1: size is given twice"),
    (".yaml", "command: [t]\nname: !!python/name:os.system x\n", "tags are not understood"),
    (".yaml", "command: 'it''s\n", "job.yaml:2:1: found unexpected end of stream"),
    (".yaml", "command: it's\n", "job.yaml:1:1: command: No closing quotation"),
    (
        ".yaml",
        "command: [t]\nrequires:\n  labels: [a b]\n",
        "job.yaml:3:12: requires.labels.0: expected letters and digits, and ., _ and - after the first",
    ),
    (".yaml", "command: [t]\ntasks: [{size: -1}]\n", "job.yaml:2:10: tasks.0.size: has to be greater than 0"),
    (
        ".yaml",
        "command: [t]\ntasks: [{size: 1}]\nparameters: {a: [1]}\n",
        "job.yaml:1:1: give either tasks or parameters",
    ),
    (".yaml", "- a\n", "this is not a job"),
    (".yaml", "", "this is not a job"),
    (".yaml", "name: x\n", "there is no command to run"),
    (".toml", "command = ['t']\nb = = 2\n", "job.toml:2:5: this is not TOML: Invalid value"),
    (".toml", "command = ['t']\n[requires]\nos = 'linucs'\n", "job.toml:3:1: requires.os: expected 'linux'"),
    (
        ".toml",
        "command = ['t']\n[[tasks]]\nsize = 1\n[[tasks]]\nsiez = 1\n",
        "job.toml:5:1: tasks.1.siez: there is no such key",
    ),
    (".json", '{"command": ["t"],\n "size": 1,}', "job.json:2:12: this is not JSON"),
    (".json", '{"command": ["t"],\n "size": -1}', "job.json:2:2: size: has to be greater than 0"),
    (".txt", "command: [t]", "job.txt: unknown file type"),
]


def submitted(fake: FakeMaster, run: Run, *words: str) -> Any:
    fake.on("POST /jobs", ok(Submission(id=1, task_count=1), 201))
    ran = run("submit", *words)
    assert ran.code == 0, ran.err
    JobSpec.model_validate(fake.seen[-1].body)
    assert fake.seen[-1].body.pop("folder") == Path.cwd().as_posix()
    return fake.seen[-1].body


@pytest.mark.parametrize(("name", "text"), [("j.yaml", YAML), ("j.yml", YAML), ("j.toml", TOML), ("j.json", JSON)])
def test_three_formats_are_equivalent(fake: FakeMaster, run: Run, name: str, text: str) -> None:
    Path(name).write_text(text)
    assert submitted(fake, run, "--file", name) == DOCUMENT


def test_command_line_overrides_the_file(fake: FakeMaster, run: Run) -> None:
    Path("j.yaml").write_text(YAML)
    words = ["--file", "j.yaml", "--size", "1h", "--memory", "1GB", "--env", "B=3", "--param", "seed=1,2"]
    assert submitted(fake, run, *words, "--", "other", "{seed}") == DOCUMENT | {
        "command": ["other", "{seed}"],
        "size": 3600.0,
        "requires": {"os": "linux", "memory_bytes": 1_000_000_000},
        "environment": {"A": "1", "B": "3"},
        "parameters": {"seed": [1, 2], "lr": ["1e-3", 0.1], "mode": ["on", "off", "007"]},
    }


@pytest.mark.parametrize(
    ("words", "parameters"),
    [
        (["--param", "seed=1..3"], {"lr": [0.1, 0.01], "seed": {"range": [1, 3]}}),
        (["--array", "1-2"], {"lr": [0.1, 0.01], "seed": [7], "index": {"range": [1, 2]}}),
        (
            ["--zip", "--param", "lr=1,2", "--param", "seed=3,4"],
            {"rows": [{"lr": 1, "seed": 3}, {"lr": 2, "seed": 4}]},
        ),
        ([], {"lr": [0.1, 0.01], "seed": [7]}),
    ],
)
def test_parameters_are_merged_by_name(
    fake: FakeMaster, run: Run, words: list[str], parameters: dict[str, Any]
) -> None:
    Path("j.yaml").write_text("command: t --lr {lr} --seed {seed}\nparameters: {lr: [0.1, 0.01], seed: [7]}\n")
    body = submitted(fake, run, "--file", "j.yaml", *words)
    assert body["parameters"] == parameters
    assert list(body["parameters"]) == list(parameters), "the last varies fastest"


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("{lr: [0.1, 0.01], seed: [7]}", ["--zip", "--param", "seed=1..3"]),
        ("{lr: [0.1, 0.01], seed: [7]}", ["--csv", "seeds.csv"]),
        ("{rows: [{lr: 0.1, seed: 7}]}", ["--param", "seed=1..3"]),
    ],
)
def test_rows_that_drop_a_parameter_of_the_command_are_refused(
    fake: FakeMaster, run: Run, parameters: str, words: list[str]
) -> None:
    Path("seeds.csv").write_text("seed\n1\n")
    Path("job.yaml").write_text(f"command: t --lr {{lr}} --seed {{seed}}\nparameters: {parameters}\n")
    ran = run("submit", "--file", "job.yaml", *words)
    assert (ran.code, fake.seen) == (2, [])
    assert "job.yaml:2:" in ran.err
    assert "the command says {lr}" in ran.err
    assert "--param lr=VALUES" in ran.err


def test_rows_may_drop_parameters_that_the_command_does_not_use(fake: FakeMaster, run: Run) -> None:
    Path("j.yaml").write_text("command: t ${lr} {seed}\nparameters: {lr: [0.1], seed: [7]}\n")
    assert submitted(fake, run, "--file", "j.yaml", "--zip", "--param", "seed=5")["parameters"] == {
        "rows": [{"seed": 5}]
    }


def test_labels_are_added(fake: FakeMaster, run: Run) -> None:
    Path("j.yaml").write_text("command: t\nrequires: {labels: [gpu, lab], os: linux}\n")
    requires = submitted(fake, run, "--file", "j.yaml", "--label", "lab", "--label", "matlab")["requires"]
    assert requires == {"labels": ["gpu", "lab", "matlab"], "os": "linux"}


def test_error_in_a_merged_part_of_the_file_has_its_position(run: Run) -> None:
    Path("job.yaml").write_text("command: t\nparameters:\n  lr: [1, [2]]\n")
    ran = run("submit", "--file", "job.yaml", "--param", "seed=1..3")
    assert "job.yaml:3:11: parameters.lr.1: " in ran.err


def test_a_file_need_not_have_a_command_or_a_name(
    fake: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"size: 90\n")))
    assert submitted(fake, run, "--file", "-", "--", "/bin/t") == {"name": "t", "command": ["/bin/t"], "size": 90}


def test_a_command_may_be_one_line(fake: FakeMaster, run: Run) -> None:
    Path("j.yaml").write_text("command: ./train --lr {lr} --note 'two words'\nparameters: {lr: '0.1,0.2'}\n")
    body = submitted(fake, run, "--file", "j.yaml")
    assert body["command"] == ["./train", "--lr", "{lr}", "--note", "two words"]
    assert body["parameters"] == {"lr": [0.1, 0.2]}


@pytest.mark.parametrize(("suffix", "text", "message"), MISTAKES, ids=[text for _, text, _ in MISTAKES])
def test_errors_have_their_position(fake: FakeMaster, run: Run, suffix: str, text: str, message: str) -> None:
    Path(f"job{suffix}").write_text(text)
    ran = run("submit", "--file", f"job{suffix}")
    assert ran.code == 2
    assert message in ran.err
    assert fake.seen == []


def test_words_of_a_command_are_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: [./fit, --lr, 0.10, --n, 007, -1, yes, 1e3]\nenvironment: {SEED: 01, LR: 1.50}\n")
    document = job_file.read(file).document
    assert document["command"] == ["./fit", "--lr", "0.10", "--n", "007", "-1", "yes", "1e3"]
    assert document["environment"] == {"SEED": "01", "LR": "1.50"}
    file = file.with_suffix(".toml")
    file.write_text("tasks = [{command = ['./fit', 7]}]\n")
    assert job_file.read(file).document["tasks"] == [{"command": ["./fit", "7"]}]


def test_error_on_the_command_line_is_not_attributed_to_the_file(fake: FakeMaster, run: Run) -> None:
    Path("job.yaml").write_text("command: [t]\nsize: 3\n")
    ran = run("submit", "--file", "job.yaml", "--max-attempts", "0")
    assert "error: max_attempts: has to be at least 1" in ran.err


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab: #'\"\\-{}\n\té", max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab-1", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=tried(30, 1000))
@given(plain)
def test_json_is_read_by_the_reader_of_yaml(document: Any) -> None:
    read, positions = read_yaml(json.dumps(document, ensure_ascii=False))
    assert read == document
    assert () in positions


def test_no_file_crashes_the_reader() -> None:
    for text in ("a: &a [*a]", "a: &a [1,2]\nb: [*a, *a]", "\x00", "%YAML 9.9\n---\na: 1", "? [a]\n: b"):
        with suppress(ParseError):
            read_yaml(text)
    with pytest.raises(ParseError, match="nested too deeply"):
        read_yaml("[" * 700)


def test_positions_in_toml_files_are_found() -> None:
    text = 'a.b = 1\n"c d" = [\n  1,\n]\n  [x."y.z"]\n  k = {l = 1}\n[[t]]\nn = 1\n[[t]]\nn = 2\n'
    assert find_in_toml(text) == {
        ("a", "b"): (1, 1), ("c d",): (2, 1), ("x", "y.z"): (5, 3), ("x", "y.z", "k"): (6, 3),
        ("t", 0): (7, 1), ("t", 0, "n"): (8, 1), ("t", 1): (9, 1), ("t", 1, "n"): (10, 1),
    }  # fmt: skip
