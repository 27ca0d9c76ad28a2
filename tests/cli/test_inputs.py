"""submit --input and --output: files missing at the master are uploaded, then named by the job."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from aiohttp import web

from loopline.cli.submission import inputs as submitted_inputs
from loopline_shared.rest.bodies import Submission
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, ok, refuse


class Files:
    """The files uploaded to a fake master."""

    def __init__(self, fake: FakeMaster) -> None:
        self._fake = fake
        self.puts: list[tuple[str, str | None, bytes]] = []  # name, range, content
        fake.on("POST /jobs", ok(Submission(id=7, task_count=1), 201))

    def expect(self, content: bytes, offset: int | None = 0) -> str:
        """Expect a file of which the master has ``offset`` bytes; None: all."""
        name = hashlib.sha256(content).hexdigest()

        async def head(_: web.Request) -> web.Response:
            is_here = offset is None or any(put[0] == name for put in self.puts)
            headers = {"Upload-Offset": str(offset)} if offset else {}
            return web.Response(status=200 if is_here else 404, headers=headers)

        async def put(request: web.Request) -> web.Response:
            self.puts.append((name, request.headers.get("Content-Range"), await request.read()))
            return web.Response(status=204)

        self._fake.on(f"HEAD /files/{name}", head)
        self._fake.on(f"PUT /files/{name}", put)
        return name

    @property
    def job(self) -> dict[str, object]:
        body = self._fake.asked("POST /jobs")[-1].body
        assert isinstance(body, dict)
        return body


@pytest.fixture
def files(fake: FakeMaster) -> Files:
    return Files(fake)


def test_files_are_uploaded_with_a_job(files: Files, run: Run, tmp_path: Path) -> None:
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "x").write_bytes(b"one")
    (tmp_path / "data" / "sub" / "y").write_bytes(b"one")
    tool = tmp_path / "tool"
    tool.write_bytes(b"two")
    tool.chmod(0o755)
    one, two = files.expect(b"one"), files.expect(b"two")
    options = ["--input", "data/", "--input", "tool=bin/tool", "--output", "*.csv", "--output-optional", "*.log"]
    ran = run("submit", *options, "--", "bin/tool")
    assert ran.code == 0, ran.err
    assert sorted(files.puts) == sorted([(one, None, b"one"), (two, None, b"two")])  # each content once
    assert files.job["inputs"] == {
        "data/x": f"sha256:{one}",
        "data/sub/y": f"sha256:{one}",
        "bin/tool": {"file": f"sha256:{two}", "executable": True},
    }
    assert files.job["outputs"] == ["*.csv", {"path": "*.log", "optional": True}]


def test_stored_files_are_skipped_and_interrupted_ones_resumed(files: Files, run: Run, tmp_path: Path) -> None:
    for name, content, offset in (("here", b"here", None), ("half", b"0123456789", 4)):
        (tmp_path / name).write_bytes(content)
        files.expect(content, offset)
    assert run("submit", "--input", "here", "--input", "half", "--", "x").code == 0
    assert [(span, content) for _, span, content in files.puts] == [("bytes 4-9/10", b"456789")]


def test_invalid_partial_upload_is_restarted_once(fake: FakeMaster, files: Files, run: Run, tmp_path: Path) -> None:
    (tmp_path / "half").write_bytes(b"0123456789")
    name = files.expect(b"0123456789", 4)
    put, wrong = fake.answers(f"PUT /files/{name}")[0], refuse(422, "wrong_hash", "this content has another SHA-256")
    fake.on(f"PUT /files/{name}", wrong, put)
    assert run("submit", "--input", "half", "--", "x").code == 0
    assert [(span, content) for _, span, content in files.puts] == [(None, b"0123456789")]
    files.puts.clear()
    fake.on(f"PUT /files/{name}", wrong)
    ran = run("submit", "--input", "half", "--", "x")
    assert (ran.code, "has changed while it was being uploaded" in ran.err) == (2, True), ran.err
    assert len(fake.asked(f"PUT /files/{name}")) == 4


def test_paths_in_a_job_file_are_relative_to_its_folder(files: Files, run: Run, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "x").write_bytes(b"x")
    (tmp_path / "y").write_bytes(b"y")
    job = tmp_path / "project" / "job.yaml"
    job.write_text("command: cat x y\ninputs: [x]\noutputs: ['out/**']\n")
    names = {name: files.expect(name.encode()) for name in ("x", "y")}
    ran = run("submit", "--file", str(job), "--input", "y")
    assert ran.code == 0, ran.err
    assert files.job["inputs"] == {name: f"sha256:{sha256}" for name, sha256 in names.items()}
    assert files.job["outputs"] == ["out/**"]


def test_invalid_inputs_are_reported_before_any_upload(
    files: Files, fake: FakeMaster, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    for words, reason in (
        (["--input", "none"], "there is no file or folder none"),
        (["--input", "x=../x"], "must not leave"),
        (["--input", "x", "--output", "../*"], "must not leave"),
    ):
        ran = run("submit", *words, "--", "cat")
        assert (ran.code, reason in ran.err) == (2, True), ran.err
    name = files.expect(b"x")
    fake.on(f"PUT /files/{name}", refuse(413, "too_large", "files may have at most 0 bytes here"))
    ran = run("submit", "--input", "x", "--", "cat")
    assert ran.code == 1
    assert "x: files may have at most 0 bytes here" in ran.err
    assert fake.asked("POST /jobs") == []


def test_each_task_gets_the_file_that_its_parameter_names(files: Files, run: Run, tmp_path: Path) -> None:
    (tmp_path / "wav").mkdir()
    for name in ("a", "b"):
        (tmp_path / "wav" / f"{name}.wav").write_text(name)
    (tmp_path / "all.txt").write_text("wav/a.wav\nwav/b.wav\n")
    (tmp_path / "model").write_text("model")
    one, two, model = files.expect(b"a"), files.expect(b"b"), files.expect(b"model")
    words = ["--each-line", "all.txt", "--input", "model", "--input", "{line}", "--input", "{line}=in.wav"]
    ran = run("submit", *words, "--output", "{line}.mp3", "--", "convert", "{line}")
    assert ran.code == 0, ran.err
    assert files.job["inputs"] == {"model": f"sha256:{model}"}
    assert files.job["tasks"] == [
        {"parameters": {"line": f"wav/{name}.wav"}, "inputs": dict.fromkeys((f"wav/{name}.wav", "in.wav"), file)}
        for name, file in (("a", f"sha256:{one}"), ("b", f"sha256:{two}"))
    ]
    assert "parameters" not in files.job
    assert sorted(content for _, _, content in files.puts) == [b"a", b"b", b"model"]
    assert run("submit", *words[:2], "--input", "auto", "--", "convert", "{line}").code == 0
    assert [list(task["inputs"]) for task in files.job["tasks"]] == [["wav/a.wav"], ["wav/b.wav"]]
    ran = run("submit", *words[:2], "--", "convert", "{line}")
    assert "{line} names a file of this folder for each task, and none is an input; add --input '{line}'" in ran.err


def test_names_of_files_may_hold_an_equals_sign(files: Files, run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("lr=1.txt", "in/lr=2.txt"):
        (tmp_path / name).write_text(name)
        files.expect(name.encode())
    ran = run("submit", "--input", "auto", "--", "cat", "lr=1.txt", "in/lr=2.txt")
    assert (ran.code, sorted(files.job["inputs"])) == (0, ["in/lr=2.txt", "lr=1.txt"]), ran.err
    sweep = ("--param", "n=1..1", "--input", "lr={n}.txt", "--input", "in/lr=2.txt=lr={n}.in")
    ran = run("submit", *sweep, "--", "cat", "lr={n}.txt")
    assert (ran.code, sorted(files.job["tasks"][0]["inputs"])) == (0, ["lr=1.in", "lr=1.txt"]), ran.err


def test_refused_token_is_named_where_an_answer_has_no_body(
    files: Files, fake: FakeMaster, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    name = files.expect(b"x")

    async def refused(_: web.Request) -> web.Response:
        return web.Response(status=401)

    fake.on(f"HEAD /files/{name}", refused)
    ran = run("submit", "--input", "x", "--", "cat", "x")
    assert ran.code == 4
    assert "this needs a valid token" in ran.err
    assert "--token" in ran.err


def test_script_with_line_ends_of_windows_gives_a_warning(files: Files, run: Run, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_bytes(b"#!/bin/sh\r\necho\r\n")
    (tmp_path / "fine.sh").write_bytes(b"#!/bin/sh\necho\r\n")
    for content in ("run.sh", "fine.sh"):
        files.expect((tmp_path / content).read_bytes())
    ran = run("submit", "--input", "run.sh", "--input", "fine.sh", "--", "./run.sh", "./fine.sh")
    assert "warning: ./run.sh has line ends of Windows (CRLF)" in ran.err
    assert "fine.sh" not in ran.err


def test_job_file_names_a_file_for_each_task(files: Files, run: Run, tmp_path: Path) -> None:
    (tmp_path / "jobs" / "wav").mkdir(parents=True)
    for name in ("a", "b"):
        (tmp_path / "jobs" / "wav" / f"{name}.wav").write_text(name)
    job = tmp_path / "jobs" / "job.yaml"
    job.write_text("command: convert {line}\nparameters: {line: [wav/a.wav, wav/b.wav]}\ninputs: ['{line}']\n")
    expected = [{f"wav/{name}.wav": f"sha256:{files.expect(name.encode())}"} for name in ("a", "b")]
    ran = run("submit", "--file", str(job))
    assert ran.code == 0, ran.err
    assert [task["inputs"] for task in files.job["tasks"]] == expected
    assert "inputs" not in files.job


def test_large_upload_is_announced_without_what_the_master_has(
    files: Files, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitted_inputs, "LARGE_BYTES", 20)
    for name, size in (("a", 30), ("b", 25), ("c", 3), ("here", 40)):
        (tmp_path / name).write_bytes(name[:1].encode() * size)
        files.expect(name[:1].encode() * size, None if name == "here" else 0)
    words = [word for name in ("a", "b", "c", "here") for word in ("--input", name)]
    ran = run("submit", *words, "--", "true")
    assert ran.code == 0, ran.err
    assert "uploading 3 files, 58 B; the largest: a (30 B), b (25 B), c (3 B)" in ran.err
    assert "uploading" not in run("submit", "--input", "c", "--", "true").err


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (["{lin}"], "the inputs say {lin}, but no parameter has this name: did you mean {line}?"),
        (["{line}.txt"], "there is no file or folder here.txt, an input of task 1"),
        (["../{line}"], "is not below this folder"),
    ],
)
def test_invalid_inputs_of_tasks_are_refused(
    files: Files, run: Run, tmp_path: Path, inputs: list[str], said: str
) -> None:
    (tmp_path / "here").write_text("x")
    (tmp_path / "all.txt").write_text("here\n")
    (tmp_path.parent / "here").write_text("x")
    ran = run(
        "submit", "--each-line", "all.txt", *(word for one in inputs for word in ("--input", one)), "--", "true"
    )
    assert ran.code == 2
    assert said in ran.err


def test_folder_input_excludes_files_that_no_task_needs(files: Files, run: Run, tmp_path: Path) -> None:
    names = (
        "pi.py .git/config .venv/pyvenv.cfg .venv/bin/python __pycache__/x.pyc .#pi.py sub/.pi.py.swp data/a.log "
        "data/keep.log data/old/x build/y .looplineignore"
    )
    for name in names.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".venv" / "bin" / "link").symlink_to("/usr/bin/env")
    (tmp_path / ".looplineignore").write_text("# big\n*.log\n!keep.log\n/build/\n")
    (tmp_path / "more").write_text("more\n")
    files.expect(b"x")
    ran = run("submit", "--input", ".", "--exclude", "data/old", "--exclude-from", "more", "--", "true")
    assert ran.code == 0, ran.err
    assert sorted(files.job["inputs"]) == ["data/keep.log", "pi.py", "sub"]
    assert files.job["inputs"]["sub"] == {"folder": True}
    assert "left out of the inputs: ./.#pi.py" in ran.err or "left out of the inputs: .#pi.py" in ran.err
    ran = run("submit", "--input", "build/", "--input", ".venv/pyvenv.cfg", "--", "true")
    assert sorted(files.job["inputs"]) == ["build/y", "pyvenv.cfg"], "a named file is sent"
    assert run("submit", "--input", ".", "--exclude-from", "none", "--", "true").code == 2
