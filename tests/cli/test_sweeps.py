"""Sweeps on the command line: sources of rows, their combination, and their way to the master."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopline.cli.submission import sources
from loopline.cli.submission.options import SweepOptions
from loopline.transfer import row_upload as loopline_rows
from loopline_shared.errors import LooplineError
from loopline_shared.rest.bodies import Preview, Submission
from loopline_shared.spec import JobSpec
from tests.campaign import tried
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, ok, refuse

TABLES = {
    "s.csv": "lr,seed\n0.1,1\n0.10,2\n1e-3,x\n",
    "quoted.csv": '\ufeffname,text\r\na,"one, ""two""\nthree"\r\n\r\nb,\r\n',
    "semicolons.csv": "a;b\n1;x,y\n",
    "tabs.tsv": "a\tb\n1\tx,y\n",
    "lines": "first\n\n  second  \nthird",
    "rows.jsonl": '{"a": 1, "b": true}\n\n{"a": 0.50}\n',
}

SWEEPS: list[tuple[list[str], list[dict[str, Any]]]] = [
    (["--csv", "s.csv"], [{"lr": 0.1, "seed": 1}, {"lr": "0.10", "seed": 2}, {"lr": "1e-3", "seed": "x"}]),
    (["--csv", "quoted.csv"], [{"name": "a", "text": 'one, "two"\nthree'}, {"name": "b", "text": ""}]),
    (["--csv", "semicolons.csv"], [{"a": 1, "b": "x,y"}]),
    (["--csv", "tabs.tsv"], [{"a": 1, "b": "x,y"}]),
    (["--each-line", "lines"], [{"line": "first"}, {"line": "  second  "}, {"line": "third"}]),
    (["--jsonl", "rows.jsonl"], [{"a": 1, "b": True}, {"a": "0.50"}]),
    (
        ["--zip", "--param", "a=1..3", "--param", "b=x,y,z"],
        [{"a": n, "b": b} for n, b in zip((1, 2, 3), "xyz", strict=True)],
    ),
    (["--zip", "--array", "2-4:2", "--param", "b=x,y"], [{"index": 2, "b": "x"}, {"index": 4, "b": "y"}]),
    (
        ["--jsonl", "rows.jsonl", "--param", "n=1..2", "--param", "m=x,y"],
        [{**row, "n": n, "m": m} for row in ({"a": 1, "b": True}, {"a": "0.50"}) for n in (1, 2) for m in "xy"],
    ),
    (
        ["--zip", "--each-line", "lines", "--param", "n=7..9"],
        [
            {"line": "first", "n": 7},
            {"line": "  second  ", "n": 8},
            {"line": "third", "n": 9},
        ],
    ),
]

MISTAKES: list[tuple[list[str], str]] = [
    (["--csv", "nope.csv"], "cannot read nope.csv: No such file or directory"),
    (["--csv", "short.csv"], "short.csv:3: this row has 1 cells, the header has 2: a, b"),
    (
        ["--csv", "names.csv"],
        "names.csv:1: column 2 is called 'learning rate': a parameter's name is letters, "
        "digits and underscores, such as learning_rate",
    ),
    (["--csv", "twice.csv"], "twice.csv:1: two columns are called a"),
    (["--csv", "empty"], "the first line is empty"),
    (["--csv", "header.csv"], "there are no rows"),
    (["--csv", "latin.csv"], "latin.csv:2: this is not text in UTF-8"),
    (["--csv", "long.csv"], "long.csv:2: b: may have at most 10000 letters"),
    (["--csv", "open.csv"], "open.csv:2: this is not CSV"),
    (["--each-line", "empty"], "there are no rows"),
    (["--jsonl", "bad.jsonl"], "bad.jsonl:3: a: expected a text"),
    (["--csv", "s.csv", "--jsonl", "rows.jsonl"], "--csv and --jsonl are given"),
    (["--csv", "s.csv", "--param", "seed=1..3"], "seed is given twice: by --csv s.csv and on its own"),
    (["--zip", "--param", "a=1..3", "--param", "b=1,2"], "as many of each: a has 3, b has 2"),
    (["--zip", "--csv", "s.csv", "--param", "n=1..2"], "n has 2, --csv s.csv has more"),
    (["--zip", "--csv", "s.csv", "--param", "n=1..4"], "--csv s.csv has 3, n has more"),
    (["--param", "a=1", "--param", "a=2"], "a parameter is given twice"),
    (["--param", "a-b=1"], "error: parameters.a-b: a name is letters, digits and underscores"),
    (["--zip", "--param", "a-b=1"], "a-b: a name is letters"),
    (["--csv", "-", "--file", "-"], "stdin can be read only once"),
    (["--csv", "--dry-run"], "expected a file, or - for stdin, got '--dry-run'"),
]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, nobodys_computer: None) -> None:
    for name, text in TABLES.items():
        (tmp_path / name).write_bytes(text.encode())
    spoilt = {
        "short.csv": b"a,b\n1,2\n3\n",
        "names.csv": b"a,learning rate\n1,2\n",
        "twice.csv": b"a,a\n1,2\n",
        "empty": b"",
        "header.csv": b"a,b\n",
        "latin.csv": "a,b\n1,\xe9\n".encode("latin-1"),
        "long.csv": b"a,b\n1," + b"x" * 10_001 + b"\n",
        "open.csv": b'a,b\n1,"x\n',
        "bad.jsonl": b'{"a": 1}\n\n{"a": [1]}\n',
    }
    for name, data in spoilt.items():
        (tmp_path / name).write_bytes(data)


def submitted(fake: FakeMaster, run: Run, *words: str) -> Any:
    """Return the parameters sent to the master."""
    fake.on("POST /jobs", ok(Submission(id=1, task_count=1), 201))
    ran = run("submit", *words, "--", "t")
    assert ran.code == 0, ran.err
    (seen,) = fake.asked("POST /jobs")
    JobSpec.model_validate(seen.body)
    return seen.body["parameters"]


@pytest.mark.parametrize(
    ("words", "rows"), SWEEPS, ids=lambda value: " ".join(value) if value and value[0] is str else None
)
def test_few_rows_are_sent_with_their_job(fake: FakeMaster, run: Run, words: list[str], rows: list[Any]) -> None:
    assert submitted(fake, run, *words) == {"rows": rows}
    assert len(fake.seen) == 1


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_errors_are_reported_before_any_request(fake: FakeMaster, run: Run, words: list[str], message: str) -> None:
    ran = run("submit", *words, "--", "t")
    assert ran.code == 2
    assert message in ran.err
    assert fake.seen == []


@pytest.mark.parametrize(
    ("option", "text", "rows"),
    [
        ("--each-line", "x\n", [{"line": "x"}]),
        ("--csv", "a\n1\n", [{"a": 1}]),
        ("--jsonl", '{"a": 1}\n', [{"a": 1}]),
    ],
)
def test_rows_can_be_read_from_stdin(
    fake: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch, option: str, text: str, rows: list[Any]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert submitted(fake, run, option, "-") == {"rows": rows}


@pytest.mark.parametrize("limit", ["MOST_INLINE", "MOST_INLINE_BYTES"])
def test_many_rows_are_uploaded_first(
    fake: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(loopline_rows, limit, 2)
    content = b'{"line":"first"}\n{"line":"  second  "}\n{"line":"third"}\n'
    sha256 = hashlib.sha256(content).hexdigest()
    fake.on(f"HEAD /files/{sha256}", refuse(404, "not_found"), ok(b""))
    fake.on(f"PUT /files/{sha256}", ok(b"", 204))
    assert submitted(fake, run, "--each-line", "lines") == {"file": f"sha256:{sha256}", "count": 3}
    assert fake.asked(f"PUT /files/{sha256}")[-1].body == content
    assert fake.seen[-1].what == "POST /jobs", "the file is uploaded before the job that names it"


def test_dry_run_shows_rows_without_sending_them(fake: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopline_rows, "MOST_INLINE", 2)
    fake.on("POST /jobs/preview", ok(Preview(task_count=3, size=None, tasks=[], warnings=["it is late"])))
    ran = run("submit", "--each-line", "lines", "--dry-run", "--", "show", "{line}", "{lien}")
    assert ran.code == 0, ran.err
    assert [seen.what for seen in fake.seen] == ["POST /jobs/preview"]
    assert "nothing is submitted: this would be 3 tasks, size unknown" in ran.out
    assert "1  show first '{lien}'" in ran.out
    assert "2  show '  second  ' '{lien}'" in ran.out
    assert "warning: it is late" in ran.out
    assert "did you mean {line}?" in ran.out
    document = run("submit", "--each-line", "lines", "--dry-run", "--json", "--", "show", "{line}").document
    assert [task["command"] for task in document["tasks"]] == [
        ["show", line] for line in ("first", "  second  ", "third")
    ]


def test_preview_of_the_master_is_shown(fake: FakeMaster, run: Run) -> None:
    tasks = [{"number": n, "command": ["t", str(n)], "parameters": {"i": n}} for n in (1, 2)]
    seen = {"task_count": 1_000_000, "size": 7200, "tasks": tasks, "expected": {"p50_s": 600, "p90_s": 5400}}
    fake.on("POST /jobs/preview", ok(seen))
    Path("data").touch()
    words = ["--array", "1-1000000", "--dry-run", "--input", "data", "--output", "*.csv"]
    ran = run("submit", *words, "--", "t", "{index}")
    assert ran.out.splitlines() == [
        "nothing is submitted: this would be 1,000,000 tasks, size 2h",
        "      1  t 1",
        "      2  t 2",
        "    ...",
        "each finds data",
        "each brings back *.csv",
        "expected to be over in 10m; 9 times out of 10 within 1h 30m",
    ]
    assert fake.seen[0].body["parameters"] == {"index": {"range": [1, 1_000_000]}}


def test_masters_error_about_a_row_is_shown(fake: FakeMaster, run: Run) -> None:
    fake.on("POST /jobs", refuse(422, "bad_row", "line 2 of the row file: no"))
    ran = run("submit", "--each-line", "lines", "--", "t", "{line}")
    assert (ran.code, "line 2 of the row file" in ran.err) == (2, True)


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=tried(25, 1000))
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {"a": st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), "b": st.integers(0, 99)}
        ),
        min_size=1,
        max_size=5,
    )
)
def test_command_gets_the_exact_text_of_a_cell(
    rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["a", "b"], quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)
    read = list(sources.rows(SweepOptions(csv=path)))
    assert [{name: str(value) for name, value in row.items()} for row in read] == [
        {"a": row["a"], "b": str(row["b"])} for row in rows
    ]


def test_row_file_is_read_once_and_row_by_row(tmp_path: Path) -> None:
    """The first rows are yielded before the error at the end is found."""
    (tmp_path / "late.jsonl").write_text("".join(json.dumps({"a": n}) + "\n" for n in range(5)) + "no\n")
    made = sources.rows(SweepOptions(jsonl=tmp_path / "late.jsonl", param=("b=1,2",)))
    assert [next(made) for _ in range(10)] == [{"a": n, "b": b} for n in range(5) for b in (1, 2)]
    with pytest.raises(LooplineError, match=r"late\.jsonl:6"):
        next(made)
