"""Row files: their lines give the same tasks as equal inline rows, at any offset and in any read order."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopline_master.files import row_files as module
from loopline_master.files.blobs import Blobs
from loopline_master.files.file_store import FolderStore
from loopline_master.files.row_files import LineIndex, RowFiles
from loopline_master.submissions.submissions import with_rows_counted
from loopline_shared.errors import LooplineError
from loopline_shared.job.parameters import RowFile, Table
from loopline_shared.model import AttemptId, Function
from loopline_shared.protocol.worker_link import Assign, Run
from loopline_shared.row_lines import MAX_LINE_BYTES, read_row, write_row
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import task_at
from tests.campaign import tried

PATIENT = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=tried(60))
scalars = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
)
rows_of_any_kind = st.lists(
    st.dictionaries(st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,5}\Z"), scalars, max_size=4), min_size=1, max_size=40
)
COMMAND = ["work", "--a={a}", "{b}{b}", "{zz}"]


async def put(blobs: Blobs, content: bytes) -> str:
    async def pieces() -> AsyncIterator[bytes]:
        yield content

    sha256 = hashlib.sha256(content).hexdigest()
    await blobs.put(sha256, pieces())
    return sha256


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(FolderStore(tmp_path / "files"), 2**30, 0)


def job(sha256: str, count: int | None = None, **more: Any) -> JobSpec:
    return JobSpec(command=COMMAND, parameters=RowFile(file=f"sha256:{sha256}", count=count), **more)


async def declined(files: RowFiles, spec: JobSpec) -> LooplineError:
    with pytest.raises(LooplineError) as caught:
        await with_rows_counted(files, spec)
    assert caught.value.status == 422
    return caught.value


@settings(PATIENT)
@given(rows=rows_of_any_kind, block_bytes=st.integers(1, 200))
def test_tasks_of_a_row_file_equal_those_of_inline_rows(
    rows: list[dict[str, Any]], block_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asyncio.run(compare(rows, block_bytes, Blobs(FolderStore(tmp_path_factory.mktemp("files")), 2**30, 0)))


async def compare(rows: list[dict[str, Any]], block_bytes: int, blobs: Blobs) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", block_bytes)
        files = RowFiles(blobs, 1000)
        inline = JobSpec(command=COMMAND, parameters=Table(rows=rows), size=10)
        spec, remarks = await with_rows_counted(files, job(await put(blobs, b"".join(map(write_row, rows))), size=10))
        _, of_inline = await with_rows_counted(files, inline)
        assert bool(remarks) == bool(of_inline), "misspelt names are detected in both"
        assert spec.task_count == len(rows)
        numbers = range(1, len(rows) + 1)
        lines = await files.rows(spec, numbers)
        assert [task_at(spec, n, lines[n]) for n in numbers] == [task_at(inline, n) for n in numbers]
        sent = await files.complete(Assign(1, 1, tuple(run(spec, n) for n in numbers)))
        assert [(r.command, r.parameters, r.row_file) for r in sent.run] == [
            (plan.command, plan.parameters, None) for plan in (task_at(inline, n) for n in numbers)
        ]


def run(spec: JobSpec, number: int) -> Run:
    assert isinstance(spec.parameters, RowFile)
    return Run(AttemptId(1, number, 1), task_at(spec, number).command, {}, {}, row_file=spec.parameters.sha256)


@settings(PATIENT)
@given(
    lines=st.lists(st.binary(max_size=50).map(lambda line: line.replace(b"\n", b"")), max_size=30),
    ends=st.booleans(),
    block_bytes=st.integers(1, 60),
    data=st.data(),
)
def test_lines_are_found_across_block_boundaries(
    lines: list[bytes], ends: bool, block_bytes: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(b"\n".join(lines) + (b"\n" if ends else b""))
    wanted = sorted(data.draw(st.sets(st.integers(0, max(0, len(lines) - 1)))))
    with pytest.MonkeyPatch.context() as patch, path.open("rb") as file:
        patch.setattr(module, "BLOCK_BYTES", block_bytes)
        found = [line.rstrip(b"\n") for line in LineIndex(path).lines(file, wanted)]
    assert found == [lines[number] if lines else b"" for number in wanted]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a": 2\n{"a": 3}\n', "line 2"),
        (b'{"a": 1}\n\n{"a": 3}\n', "line 2 of the row file: it is empty"),
        (b'{"a": 1}\n{"a": [1]}\n', "line 2 of the row file: a: expected a text"),
        (b'{"a b": 1}\n', "line 1 of the row file: a b: a name is letters, digits"),
        (b"[1]\n", "line 1"),
        (b'{"a": NaN}\n', "line 1 of the row file: a:"),
        (b'{"a": 1}, {"a": 2}\n', "line 1"),
        (b'{"a": "%s"}\n' % (b"x" * 10_001), "at most 10000 letters"),
        (json.dumps({f"p{n}": "x" * 9_999 for n in range(25)}).encode(), "have 250,"),
        (b" " * (MAX_LINE_BYTES + 1), "more than"),
        (b"", "is empty"),
    ],
)
async def test_error_in_a_row_file_names_its_line(blobs: Blobs, content: bytes, message: str) -> None:
    error = await declined(RowFiles(blobs, 10), job(await put(blobs, content)))
    assert message in error.message
    assert len(error.message) < 1000


async def test_value_used_twice_counts_twice_towards_the_size(blobs: Blobs) -> None:
    sha256 = await put(blobs, b'{"b": "%s"}\n' % (b"x" * 9_000))
    files = RowFiles(blobs, 10)
    spec = JobSpec(command=["{b}"] * 20, parameters=RowFile(file=f"sha256:{sha256}"))
    assert (await with_rows_counted(files, spec))[0].task_count == 1
    assert "have 20" in (await declined(files, spec.model_copy(update={"command": ["{b}"] * 22}))).message


async def test_count_is_compared_with_the_file(blobs: Blobs) -> None:
    files, sha256 = RowFiles(blobs, 3), await put(blobs, b'{"a": 1}\n' * 3)
    assert (
        (await with_rows_counted(files, job(sha256)))[0]
        == (await with_rows_counted(files, job(sha256, 3)))[0]
        == job(sha256, 3)
    )
    assert (await declined(files, job(sha256, 2))).code == "wrong_count"
    assert (await declined(RowFiles(blobs, 2), job(sha256))).code == "too_many_tasks"
    assert (await declined(files, job("0" * 64))).code == "missing_file"


async def test_number_of_chunked_calls_is_compared_with_the_file(blobs: Blobs) -> None:
    files, sha256 = RowFiles(blobs, 10), await put(blobs, b'{"call": "x"}\n' * 3)

    def calling(calls: int) -> JobSpec:
        function = Function(f"sha256:{sha256}", "3.11", "s", chunk=10, calls=calls)
        return JobSpec(function=function, parameters=RowFile(file=f"sha256:{sha256}"), requires={"python": "3.11"})

    assert (await with_rows_counted(files, calling(21)))[0].task_count == 3
    for calls in (20, 31):
        assert (await declined(files, calling(calls))).code == "wrong_count"


async def test_unknown_parameter_names_are_reported(blobs: Blobs) -> None:
    files = RowFiles(blobs, 10)
    sha256 = await put(blobs, b'{"seed": 1}\n{"seed": 2, "lr": 0.1}\n')
    spec = JobSpec(command=["t", "{sede}", "{lr}", "${HOME}"], parameters=RowFile(file=f"sha256:{sha256}"))
    (remark,) = (await with_rows_counted(files, spec))[1]
    assert "{sede}" in remark
    assert "did you mean {seed}?" in remark
    assert (await with_rows_counted(files, JobSpec(command=["t", "{x}"])))[1] == [], (
        "without a sweep, braces belong to the program"
    )


async def test_run_with_a_missing_or_damaged_row_file_stays_incomplete(blobs: Blobs, tmp_path: Path) -> None:
    files, sha256 = RowFiles(blobs, 10), await put(blobs, b'{"a": 1}\n{"a": 2}\n')
    spec, _ = await with_rows_counted(files, job(sha256))
    assign = Assign(1, 1, (run(spec, 2),))
    path = blobs.find(sha256)
    assert path
    path.write_bytes(b'{"a": 1}\n')
    assert await files.complete(assign) == assign
    path.unlink()
    assert await files.complete(assign) == assign
    assert await files.rows(spec, [1]) == {}
    assert task_at(spec, 1).command == tuple(COMMAND), "a task without its row is shown as submitted"


async def test_counting_stops_when_the_client_disconnects(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    read, begun = [], asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(line: bytes) -> Any:
        read.append(line)
        loop.call_soon_threadsafe(begun.set)
        stopped.wait(20)
        return read_row(line)

    sha256 = await put(blobs, b'{"a": 1}\n' * 5)
    stopped = module.threading.Event()
    monkeypatch.setattr(module, "read_row", slow)
    checking = asyncio.create_task(with_rows_counted(RowFiles(blobs, 10), job(sha256)))
    await begun.wait()
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    stopped.set()
    await loop.shutdown_default_executor()
    assert len(read) == 1
