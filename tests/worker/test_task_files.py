"""Input and output files of a task: the cache, the scratch folder, and the collection of outputs."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import re
import shutil
import threading
from collections.abc import AsyncIterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from loopline_shared import checksums, manifest
from loopline_shared.model import AttemptId, InputFile, InputFolder, InputLink, Outcome, OutputFile, Result
from loopline_shared.protocol.worker_link import Run
from loopline_worker.attempts import scratch
from loopline_worker.attempts.limits import Quota
from loopline_worker.files import downloads, hard_links, staging
from loopline_worker.files import outputs as outputs_module
from loopline_worker.files.allowance import NetworkAllowance
from loopline_worker.files.cache import Cache
from loopline_worker.files.downloads import DownloadError, Downloads
from loopline_worker.files.outputs import Collected, Collector, OutputsError
from loopline_worker.files.staging import Inputs, StagingError
from loopline_worker.files.task_files import AttemptFiles
from loopline_worker.launch.sandbox import open_sandbox
from loopline_worker.link.http_client import HttpClient
from loopline_worker.settings import WorkerSettings
from tests.sandboxes import needs_bubblewrap
from tests.worker.bench import Bench, python, run_of, until
from tests.worker.small_master import SmallMaster

CONTENT = bytes(range(256)) * 8000


@pytest.fixture
async def gate(master: SmallMaster) -> AsyncIterator[HttpClient]:
    async with HttpClient(WorkerSettings(master=master.url, token="t", retry_min_s=0.01, retry_max_s=0.02)) as gate:  # type: ignore[arg-type]
        yield gate


@pytest.fixture
def cache(tmp_path: Path, gate: HttpClient) -> Cache:
    return a_cache(tmp_path, gate)


def a_cache(folder: Path, gate: HttpClient, limit_bytes: int = 2**30) -> Cache:
    return Cache(folder / "cache", limit_bytes, Downloads(gate))


async def read(cache: Cache, sha256: str) -> bytes:
    async with cache.hold(sha256) as path:
        return path.read_bytes()


def downloads_of(master: SmallMaster, sha256: str) -> list[str]:
    """Return the requested ranges."""
    return [span for method, name, span in master.asked if (method, name) == ("GET", sha256)]


# The cache


async def test_file_is_fetched_once(master: SmallMaster, cache: Cache, tmp_path: Path, gate: HttpClient) -> None:
    name = master.holds(CONTENT)
    master.gate.clear()
    needs = [asyncio.create_task(read(cache, name)) for _ in range(5)]
    await until(lambda: downloads_of(master, name))
    master.gate.set()
    assert await asyncio.gather(*needs) == [CONTENT] * 5
    assert await read(cache, name) == CONTENT
    assert await read(a_cache(tmp_path, gate), name) == CONTENT  # after a restart
    assert downloads_of(master, name) == [""]


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_interrupted_download_is_resumed(
    master: SmallMaster,
    cache: Cache,
    tmp_path: Path,
    gate: HttpClient,
    monkeypatch: pytest.MonkeyPatch,
    is_sealed: bool,
) -> None:
    name = master.holds(CONTENT)
    if is_sealed:
        master.checksums[name] = checksum_of(CONTENT)
    master.breaks_off_after = 900_000
    assert await read(cache, name) == CONTENT
    assert is_contiguous(downloads_of(master, name))
    other = master.holds(CONTENT[::-1])
    monkeypatch.setattr(downloads, "PATIENCE_S", -1)
    with pytest.raises(DownloadError, match="cannot be fetched"):
        await read(cache, other)
    master.breaks_off_after = 0
    assert await read(a_cache(tmp_path, gate), other) == CONTENT[::-1]  # by the next agent
    assert is_contiguous(downloads_of(master, other))


def is_contiguous(spans: list[str]) -> bool:
    """Return whether each download started where the previous one ended."""
    starts = [int(span[len("bytes=") : -1] or 0) for span in spans]
    return len(starts) > 1 and starts[0] == 0 and starts == sorted(set(starts))


@pytest.mark.parametrize("tells_lengths", [False, True])
@pytest.mark.parametrize("content", [b"", b"x", CONTENT * 3])
async def test_files_of_any_length_are_fetched(
    master: SmallMaster, cache: Cache, content: bytes, tells_lengths: bool
) -> None:
    master.tells_lengths = tells_lengths  # a proxy may drop the header
    assert await read(cache, master.holds(content)) == content


async def test_download_is_checked_against_its_hash(master: SmallMaster, cache: Cache) -> None:
    name = hashlib.sha256(CONTENT).hexdigest()
    master.blobs[name] = CONTENT[:-1] + b"x"
    with pytest.raises(DownloadError, match="does not match its hash") as failure:
        await read(cache, name)
    assert not failure.value.is_gone
    master.blobs[name] = CONTENT
    assert await read(cache, name) == CONTENT


async def test_download_is_checked_against_its_seal(master: SmallMaster, cache: Cache) -> None:
    name = master.holds(CONTENT)
    master.checksums[name] = checksum_of(CONTENT[::-1])
    with pytest.raises(DownloadError, match="does not match its hash"):
        await read(cache, name)
    master.checksums[name] = checksum_of(CONTENT)
    master.blobs[name] = CONTENT[:-1] + b"x"
    with pytest.raises(DownloadError, match="does not match its hash"):
        await read(cache, name)
    master.blobs[name] = CONTENT
    assert await read(cache, name) == CONTENT


@pytest.mark.parametrize("checksum", ["", "blake3:", "blake4:" + "0" * 64, "blake3:" + "g" * 64, "0" * 1000])
async def test_download_with_an_invalid_seal_is_checked_by_its_name(
    master: SmallMaster, cache: Cache, checksum: str
) -> None:
    name = master.holds(CONTENT)
    master.checksums[name] = checksum
    master.blobs[name] = CONTENT[:-1] + b"x"
    with pytest.raises(DownloadError, match="does not match its hash"):
        await read(cache, name)
    master.blobs[name] = CONTENT
    assert await read(cache, name) == CONTENT


async def test_worker_without_blake3_checks_the_name(
    master: SmallMaster, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "_blake3", None)
    name = master.holds(CONTENT)
    master.checksums[name] = checksum_of(CONTENT[::-1])
    assert await read(cache, name) == CONTENT


def checksum_of(content: bytes) -> str:
    return f"blake3:{blake3(content).hexdigest()}"


async def test_file_missing_at_the_master_is_reported_as_gone(cache: Cache) -> None:
    with pytest.raises(DownloadError, match="the master has no file") as failure:
        await read(cache, "0" * 64)
    assert failure.value.is_gone


async def test_least_recently_used_files_are_removed_first(
    master: SmallMaster, tmp_path: Path, gate: HttpClient
) -> None:
    names = [master.holds(bytes([n]) * 100) for n in range(4)]
    cache = a_cache(tmp_path, gate, limit_bytes=300)
    for name in names[:3]:
        await read(cache, name)
    await read(cache, names[0])
    await read(cache, names[3])
    assert cache.size_bytes == 300
    assert {file.name for file in (tmp_path / "cache").iterdir() if file.is_file()} == {names[n] for n in (0, 2, 3)}
    cache = a_cache(tmp_path, gate, limit_bytes=100)  # survives a restart
    async with cache.hold(names[2]), cache.hold(names[0]):
        assert cache.size_bytes == 300  # files in use are kept
    assert {file.name for file in (tmp_path / "cache").iterdir() if file.is_file()} <= {names[2], names[0]}
    assert cache.size_bytes == 100


async def test_changed_file_is_fetched_again(master: SmallMaster, cache: Cache, tmp_path: Path) -> None:
    name = master.holds(CONTENT)
    await read(cache, name)
    file = tmp_path / "cache" / name
    before = file.stat()
    file.chmod(0o600)
    file.write_bytes(CONTENT[:-1] + b"x")
    file.chmod(0o444)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # with the old modification time
    assert await read(cache, name) == CONTENT
    assert len(downloads_of(master, name)) == 2


async def test_download_ends_when_its_last_waiter_is_cancelled(
    master: SmallMaster, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()  # drop leftovers of other tests
    caplog.clear()
    name = master.holds(CONTENT)
    master.gate.clear()
    first, second = (asyncio.create_task(read(cache, name)) for _ in range(2))
    await until(lambda: downloads_of(master, name) and cache._waiting[name] == 2)
    first.cancel()
    await asyncio.wait([first])
    master.gate.set()
    assert await second == CONTENT
    assert len(downloads_of(master, name)) == 1
    other = master.holds(b"other")
    master.gate.clear()
    only = asyncio.create_task(read(cache, other))
    await until(lambda: downloads_of(master, other))
    only.cancel()
    await asyncio.wait([only])
    master.gate.set()
    assert await read(cache, other) == b"other"
    del first, only
    gc.collect()
    assert not caplog.records, "a cancelled download is not logged"


async def test_download_without_a_connection_is_cancelled_at_once(
    master: SmallMaster, gate: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting, may_connect, is_over = (threading.Event() for _ in range(3))
    connect = HTTPConnection.connect

    def slowly(connection: HTTPConnection) -> None:
        connecting.set()
        may_connect.wait()
        connect(connection)

    monkeypatch.setattr(HTTPConnection, "connect", slowly)
    monkeypatch.setattr(HTTPConnection, "close", lambda _: is_over.set())
    name, part = master.holds(CONTENT), tmp_path / "part"
    fetching = asyncio.create_task(Downloads(gate).fetch(name, part))
    try:
        await asyncio.to_thread(connecting.wait)
        fetching.cancel()
        await asyncio.wait([fetching], timeout=60)
        assert fetching.cancelled()
    finally:
        may_connect.set()
    await asyncio.to_thread(is_over.wait)
    assert not part.exists()
    assert not downloads_of(master, name)


async def test_downloads_count_towards_the_daily_allowance(
    master: SmallMaster, gate: HttpClient, tmp_path: Path
) -> None:
    allowance = NetworkAllowance(tmp_path / "traffic.json", len(CONTENT) / 1e6)
    downloads = Downloads(gate, allowance=allowance)
    assert not allowance.look("2026-03-04")
    await downloads.fetch(master.holds(CONTENT), tmp_path / "first")
    assert "used up" in allowance.look("2026-03-04")
    assert "used up" in NetworkAllowance(tmp_path / "traffic.json", 1).look("2026-03-04"), "even after a restart"
    with pytest.raises(DownloadError, match="used up"):
        await downloads.fetch(master.holds(b"other"), tmp_path / "second")
    assert not allowance.look("2026-03-05")
    await downloads.fetch(master.holds(b"other"), tmp_path / "second")


# Into the scratch folder


@pytest.fixture
async def bench(tmp_path: Path, cache: Cache) -> AsyncIterator[Bench]:
    async with Bench(tmp_path) as bench:
        yield shelved(bench, cache)


def shelved(bench: Bench, cache: Cache, outputs_limit_bytes: int = 2**30) -> Bench:
    bench.runner._attempt_files = AttemptFiles(cache, bench.spool, 2**30, outputs_limit_bytes)
    return bench


def taking(
    master: SmallMaster, run: Run, files: dict[str, bytes | InputFile | InputLink | InputFolder], **more: Any
) -> Run:
    listed = {
        path: InputFile(master.holds(file), len(file)) if isinstance(file, bytes) else file
        for path, file in files.items()
    }
    fields = {name: getattr(run, name) for name in ("attempt", "command", "parameters", "environment", "timeout_s")}
    return Run(**{**fields, "inputs": master.holds(manifest.encode(listed)), **more})


def left(bench: Bench, result: Result) -> dict[str, bytes]:
    folder = bench.spool.files_folder(result.attempt)
    return {file.path: (folder / file.sha256).read_bytes() for file in result.outputs}


async def test_task_finds_its_inputs(bench: Bench, master: SmallMaster) -> None:
    script = "cat data/x own; test -x tool && test ! -x own && echo more >> data/x && cat data/x"
    tool = InputFile(master.holds(b"#!/bin/sh\n"), 10, executable=True)
    run = taking(
        master, run_of("sh", "-c", script), {"data/x": b"one\n", "tool": tool, "own": b"not this\n"},
        own_inputs={"own": InputFile(master.holds(b"mine\n"))},
    )  # fmt: skip
    result = await bench.result(run)
    assert result.outcome is Outcome.SUCCEEDED
    assert result.stdout.data == b"one\nmine\none\nmore\n"
    again = taking(master, run_of("cat", "data/x", task=2), {"data/x": b"one\n"})
    assert (await bench.result(again)).stdout.data == b"one\n"  # the cached file is unchanged


async def test_task_finds_links_and_empty_folders(bench: Bench, master: SmallMaster) -> None:
    script = "readlink data/now own; cat data/now; echo > out/plots/x && ls -A out own/"
    found = {"data/now": InputLink("x.csv"), "out/plots": InputFolder(True)}
    run = taking(
        master, run_of("sh", "-c", script), {"data/x.csv": b"one\n", **found}, own_inputs={"own": InputLink("data")}
    )
    result = await bench.result(run)
    assert result.stdout.data.decode().split() == ["x.csv", "data", "one", "out:", "plots", "own/:", "now", "x.csv"]


def links_from_1000_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Link files from 1000 bytes, on any file system."""
    monkeypatch.setattr(hard_links, "LINKED_FROM_BYTES", 1000)
    monkeypatch.setattr(staging, "_clone", lambda *_: False)


async def test_large_file_is_linked_and_checked(
    bench: Bench, master: SmallMaster, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    links_from_1000_bytes(monkeypatch)
    name = master.holds(CONTENT)
    code = "import os; s = os.stat('x'); print(s.st_nlink, oct(s.st_mode & 0o777))"
    assert (await bench.result(taking(master, python(code), {"x": CONTENT}))).stdout.data == b"2 0o444\n"
    await bench.result(taking(master, python(code, task=2), {"x": CONTENT}))
    assert len(downloads_of(master, name)) == 1
    evil = "import os; s = os.stat('x'); os.chmod('x', 0o600); open('x', 'r+b').write(b'!')\n"
    evil += "os.chmod('x', 0o444); os.utime('x', ns=(s.st_atime_ns, s.st_mtime_ns))"
    result = await bench.result(taking(master, python(evil, task=3), {"x": CONTENT}))
    assert (result.outcome, result.exit_code) == (Outcome.GIVEN_BACK, 0)
    assert "its input x, which tasks share here, was changed by one of them" in result.reason
    assert not cache.path(name).exists()
    fine = taking(master, python("print(open('x', 'rb').read(1))", task=4), {"x": CONTENT})
    assert (await bench.result(fine)).stdout.data == b"b'\\x00'\n"
    result = await bench.result(taking(master, python(evil, task=5), {"x": CONTENT}))
    assert result.outcome is Outcome.SUCCEEDED  # with its own copy


async def borrow(cache: Cache, folder: Path, sha256: str, limit_bytes: int | None = None) -> Inputs:
    folder.mkdir()
    run = Run(AttemptId(1, 1, 1), ("true",), {}, {}, own_inputs={"x": InputFile(sha256)})
    inputs = Inputs(run, folder, cache, limit_bytes)
    await inputs.stage()
    return inputs


async def test_linked_file_stays_in_the_cache(
    master: SmallMaster, tmp_path: Path, gate: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    links_from_1000_bytes(monkeypatch)
    cache = a_cache(tmp_path, gate, limit_bytes=len(CONTENT))
    name, other = master.holds(CONTENT), master.holds(CONTENT[::-1])
    inputs = await borrow(cache, tmp_path / "a", name)
    await read(cache, other)
    cache.make_room(2**40)
    assert cache.path(name).exists()
    assert not cache.path(other).exists()
    await inputs.detach()
    cache.make_room(2**40)
    assert not cache.path(name).exists()
    await inputs.detach()  # once more


async def test_missing_linked_file_is_reported(
    master: SmallMaster, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links_from_1000_bytes(monkeypatch)
    inputs = await borrow(cache, tmp_path / "a", master.holds(CONTENT))
    cache.path(master.holds(CONTENT)).unlink()
    with pytest.raises(StagingError, match="was changed"):
        await inputs.detach()


async def test_no_task_that_shared_a_changed_file_succeeds(
    master: SmallMaster, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links_from_1000_bytes(monkeypatch)
    name = master.holds(CONTENT)
    evil, victim, slow = [await borrow(cache, tmp_path / folder, name) for folder in ("evil", "victim", "slow")]
    (tmp_path / "evil" / "x").chmod(0o600)
    with (tmp_path / "evil" / "x").open("r+b") as file:
        file.write(b"!")
    for inputs in (evil, victim):
        with pytest.raises(StagingError, match="was changed") as failure:
            await inputs.detach()
        assert failure.value.outcome is Outcome.GIVEN_BACK
    await borrow(cache, tmp_path / "next", name)
    assert (tmp_path / "next" / "x").stat().st_nlink == 1
    assert (tmp_path / "next" / "x").read_bytes() == CONTENT
    with pytest.raises(StagingError, match="was changed"):  # although it is intact again
        await slow.detach()


async def test_renamed_linked_file_is_collected_and_stays_read_only(
    bench: Bench, master: SmallMaster, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    links_from_1000_bytes(monkeypatch)
    name = master.holds(CONTENT)
    result = await bench.result(taking(master, run_of("mv", "x", "y.bin"), {"x": CONTENT}, outputs=("*.bin",)))
    assert left(bench, result) == {"y.bin": CONTENT}
    assert cache.path(name).stat().st_mode & 0o777 == 0o444
    own = taking(master, run_of("chmod", "600", "x", task=2), {"x": CONTENT})
    assert (await bench.result(own)).outcome is Outcome.SUCCEEDED
    mode = taking(master, python("import os; print(oct(os.stat('x').st_mode & 0o777))", task=3), {"x": CONTENT})
    assert (await bench.result(mode)).stdout.data == b"0o444\n"


async def test_time_for_fetching_does_not_count_as_run_time(bench: Bench, master: SmallMaster) -> None:
    master.gate.clear()
    run = taking(master, run_of("cat", "x", timeout_s=2.0), {"x": b"hello"})
    bench.runner.start(run)
    await until(lambda: len(master.asked) >= 1)
    await until(lambda: bench.runner.held(run.attempt).in_slot_s > 2.0)
    master.gate.set()
    result = await bench.end_of(run)
    assert (result.outcome, result.stdout.data) == (Outcome.SUCCEEDED, b"hello")


async def test_task_can_be_cancelled_while_files_are_fetched(bench: Bench, master: SmallMaster) -> None:
    master.gate.clear()
    run = taking(master, run_of("cat", "x"), {"x": b"hello"})
    bench.runner.start(run)
    await until(lambda: master.asked)
    bench.runner.cancel(run.attempt)
    assert (await bench.end_of(run)).outcome is Outcome.CANCELLED
    await until(lambda: not (bench.scratch / str(run.attempt)).exists())


async def test_missing_input_fails_and_unreachable_input_gives_back(
    bench: Bench, master: SmallMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = taking(master, run_of("true"), {"data/x": InputFile("0" * 64, 1)})
    result = await bench.result(gone)
    assert (result.outcome, result.exit_code) == (Outcome.FAILED, None)
    assert "its inputs cannot be fetched: the master has no file 000" in result.reason
    master.breaks_off_after = 1
    monkeypatch.setattr(downloads, "PATIENCE_S", -1)
    result = await bench.result(taking(master, run_of("true", task=2), {"x": CONTENT}))
    assert result.outcome is Outcome.GIVEN_BACK
    assert "cannot be fetched" in result.reason
    assert bench.troubles == []


async def test_inputs_beyond_the_scratch_limit_are_refused(bench: Bench, master: SmallMaster) -> None:
    result = await bench.result(taking(master, run_of("true"), {"x": InputFile("0" * 64, 2**31)}))
    assert result.outcome is Outcome.FAILED
    assert "its inputs have 2,147,483,648 bytes, the limit is 1,073,741,824" in result.reason


async def test_inputs_count_towards_the_scratch_limit(master: SmallMaster, cache: Cache, tmp_path: Path) -> None:
    name = master.holds(CONTENT)
    await borrow(cache, tmp_path / "a", name, limit_bytes=len(CONTENT))
    with pytest.raises(StagingError, match="its inputs have 2,048,000 bytes, the limit is 2,047,999"):
        await borrow(cache, tmp_path / "b", name, limit_bytes=len(CONTENT) - 1)


@needs_bubblewrap
async def test_files_are_available_in_a_sandbox(tmp_path: Path, master: SmallMaster, cache: Cache) -> None:
    async with Bench(tmp_path, sandbox=open_sandbox()) as bench:
        run = taking(
            master, run_of("sh", "-c", "mkdir out; cp data/x out/y"), {"data/x": CONTENT}, outputs=("out/*",)
        )
        result = await shelved(bench, cache).result(run)
        assert left(bench, result) == {"out/y": CONTENT}


def test_link_in_place_of_a_scratch_folder_is_not_followed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (home / "file").write_text("mine")
    (tmp_path / "1.1.1").symlink_to(home)
    scratch.make(tmp_path / "1.1.1")
    assert not (tmp_path / "1.1.1").is_symlink()
    assert [file.name for file in home.iterdir()] == ["file"]
    assert home.stat().st_mode & 0o777 == 0o755


async def test_very_deep_folders_are_removed(tmp_path: Path) -> None:
    code = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    async with Bench(tmp_path, quota=Quota(scratch_bytes=2**40)) as bench:
        assert (await bench.result(python(code))).outcome in (Outcome.SUCCEEDED, Outcome.FAILED)
        await until(lambda: not any(bench.scratch.iterdir()))
        assert (await bench.result(run_of("true", task=2))).outcome is Outcome.SUCCEEDED


# Out of it


def collect(
    folder: Path, *patterns: str, limit_bytes: int = 2**30, optional: tuple[str, ...] = (), **inputs: InputFile
) -> Collected:
    return Collector(folder, patterns, folder.parent / "store", limit_bytes, optional=optional).collect(inputs)


def paths(collected: Collected) -> list[str]:
    return [file.path for file in collected.files]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as left by a task."""
    folder = tmp_path / "task"
    for path in ("a.csv", "b.txt", ".hidden.csv", "out/c.csv", "out/deep/d.csv", "out/.git/e.csv", ".tmp/f.csv"):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
    return folder


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("*.csv", ["a.csv"]),
        ("*", ["a.csv", "b.txt", "out/.git/e.csv", "out/c.csv", "out/deep/d.csv"]),
        (".*.csv", [".hidden.csv"]),
        ("[ab].*", ["a.csv", "b.txt"]),
        ("out/*", ["out/c.csv", "out/deep/d.csv"]),
        ("*/?.csv", ["out/c.csv"]),
        ("**/*.csv", ["a.csv", "out/c.csv", "out/deep/d.csv"]),
        ("out/**", ["out/.git/e.csv", "out/c.csv", "out/deep/d.csv"]),
        ("out", ["out/.git/e.csv", "out/c.csv", "out/deep/d.csv"]),
        ("o*", ["out/.git/e.csv", "out/c.csv", "out/deep/d.csv"]),
        ("o*/**", ["out/.git/e.csv", "out/c.csv", "out/deep/d.csv"]),
        ("**", ["a.csv", "b.txt", "out/.git/e.csv", "out/c.csv", "out/deep/d.csv"]),
        ("{a,b}.*", ["a.csv", "b.txt"]),
        ("{a.csv,out/{c,deep/d}.csv}", ["a.csv", "out/c.csv", "out/deep/d.csv"]),
        ("out/**/d.csv", ["out/deep/d.csv"]),
        ("**/**/**/d*", ["out/deep/d.csv"]),
        ("out/deep/d.csv", ["out/deep/d.csv"]),
    ],
)
def test_patterns_select_outputs(folder: Path, pattern: str, matched: list[str]) -> None:
    collected = collect(folder, pattern)
    assert (paths(collected), collected.problems) == (matched, ())
    for file in collected.files:
        content = (folder.parent / "store" / file.sha256).read_bytes()
        assert (content, hashlib.sha256(content).hexdigest()) == (file.path.encode(), file.sha256)
        assert not (folder / file.path).exists()  # renamed


def test_several_patterns_collect_a_file_once(folder: Path) -> None:
    (folder / "b.csv").write_text("a.csv")  # under another name
    assert paths(collect(folder, "*.csv", "a.*", "**")) == sorted(
        ["a.csv", "b.csv", "b.txt", "out/.git/e.csv", "out/c.csv", "out/deep/d.csv"]
    )
    assert len(list((folder.parent / "store").iterdir())) == 5


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (
            "none.csv",
            r"its output none.csv does not exist \(found: a.csv, away, b.txt, empty/, link.csv and 1 more\)",
        ),
        ("out/none.csv", r"its output out/none.csv does not exist \(found: out/.git/, out/c.csv, out/deep/\)"),
        ("empty", "its output empty is a folder without files"),
        ("empty/**", r"its output empty/\*\* is a folder without files"),
        ("none/**", r"its output none/\*\* does not exist"),
        ("empty/*", r"its outputs empty/\* matched no file \(found: no other files\)"),
        ("*.CSV", r"its outputs \*.CSV matched no file \(found: "),
        ("{a,none}.csv", "its output none.csv does not exist"),
        ("*.{csv,log}", r"its outputs \*.log matched no file"),
        ("a.csv/x", "is behind a link|does not exist"),
        ("away/passwd", "its output away/passwd is behind a link"),
        ("link.csv", "its output link.csv is a link or a device"),
    ],
)
def test_named_output_must_exist(folder: Path, path: str, reason: str) -> None:
    (folder / "away").symlink_to("/etc")
    (folder / "link.csv").symlink_to("/etc/passwd")
    (folder / "empty").mkdir()
    (folder / ".hidden.csv").unlink()
    collected = collect(folder, path)
    assert re.search(reason, collected.problems[0])
    assert len(collected.problems) == 1


def test_optional_outputs_may_be_missing(folder: Path) -> None:
    collected = collect(folder, "a.csv", optional=("*.log", "none.csv", "none/**", "b.*"))
    assert (paths(collected), collected.problems) == (["a.csv", "b.txt"], ())


def test_outputs_are_named_by_parameters(folder: Path) -> None:
    for name in ("r_1.csv", "r_2.csv", "a*b.csv", "axb.csv", "{n}.csv", "x{1,2}.log", "x1.log"):
        (folder / name).write_text(name)

    def taken(pattern: str, **parameters: Any) -> list[str]:
        collector = Collector(folder, [pattern], folder.parent / "store", 2**30, parameters=parameters)
        collected = collector.collect({})
        return [*paths(collected), *collected.problems]

    assert taken("r_{n}.csv", n=1) == ["r_1.csv"]
    assert taken("a{n}b.*", n="*") == ["a*b.csv"], "a parameter value is not a pattern"
    assert taken("{{n}}.csv", n=1) == ["{n}.csv"]
    assert taken("x{n}.log", n="{1,2}") == ["x{1,2}.log"], "braces in a value are not alternatives"
    assert taken("{r_2,axb}.{e}", e="csv") == ["axb.csv", "r_2.csv"]
    assert re.match("its output ../x is no path of its folder: .* must not leave", *taken("{n}", n="../x"))


def test_missing_output_is_named_and_the_others_are_collected(folder: Path) -> None:
    inputs = {"in.csv": InputFile("0" * 64), "data/x": InputFile("0" * 64)}
    (folder / "in.csv").write_text("input")
    (folder / "data").mkdir()
    collected = collect(folder, "a.csv", "*.log", "none.csv", **inputs)
    assert paths(collected) == ["a.csv"]
    found = "(found: .hidden.csv, a.csv, b.txt, out/)"
    assert collected.problems == (f"its output none.csv does not exist; its outputs *.log matched no file {found}",)


def test_literal_name_comes_before_a_pattern(folder: Path) -> None:
    for name in ("r[1].csv", "r1.csv", "x{1,2}.csv", "x1.csv", "what?"):
        (folder / name).write_text(name)
    assert paths(collect(folder, "r[1].csv")) == ["r[1].csv"]
    assert paths(collect(folder, "x{1,2}.csv", "what?")) == ["what?", "x{1,2}.csv"]
    assert paths(collect(folder, "r[1].csv")) == ["r1.csv"]  # the literal file was renamed: now it is a pattern


def test_zarr_folder_is_collected_completely(folder: Path) -> None:
    for name in (".zarray", ".zgroup", "0.0", "g/.zattrs"):
        (folder / "out.zarr" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "out.zarr" / name).write_text(name)
    whole = ["out.zarr/.zarray", "out.zarr/.zgroup", "out.zarr/0.0", "out.zarr/g/.zattrs"]
    same = {"out.zarr/0.0": InputFile(hashlib.sha256(b"0.0").hexdigest())}
    shutil.copytree(folder / "out.zarr", folder / "again.zarr")
    assert paths(collect(folder, "out.zarr", **same)) == whole
    shutil.rmtree(folder / "out.zarr")
    (folder / "again.zarr").rename(folder / "out.zarr")
    assert paths(collect(folder, "out.zarr/**", **same)) == whole


def test_no_output_is_collected_through_a_link(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.csv").write_text("secret")
    (folder / "away").symlink_to(outside)
    (folder / "out" / "up").symlink_to("..")
    (folder / "secret.csv").symlink_to(outside / "secret.csv")
    (folder / "within.csv").symlink_to("a.csv")
    os.mkfifo(folder / "pipe.csv")
    collected = collect(folder, "**/*.csv", "away/*", "away/**", "*/secret.csv")
    assert paths(collected) == ["a.csv", "out/c.csv", "out/deep/d.csv"]
    assert "3 links or devices" in collected.remark
    assert "its output away/** is a link or a device, not a file" in collected.problems[0]
    assert (outside / "secret.csv").read_text() == "secret"


@pytest.mark.parametrize("swapped", ["a.csv", "out"])
def test_output_swapped_for_a_link_is_not_collected(
    folder: Path, swapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap happens between the check and the collection."""
    missing = Collector._missing

    def swap(self: Collector, *args: Any) -> list[str]:
        if (folder / swapped).is_dir():
            (folder / swapped).rename(folder.parent / "elsewhere")
            (folder / swapped).symlink_to(folder.parent / "elsewhere")
        else:
            (folder / swapped).unlink()
            (folder.parent / "elsewhere.csv").write_text("mine")
            (folder / swapped).symlink_to(folder.parent / "elsewhere.csv")
        return missing(self, *args)

    monkeypatch.setattr(Collector, "_missing", swap)
    path = "a.csv" if swapped == "a.csv" else "out/c.csv"
    collected = collect(folder, path)
    assert (paths(collected), collected.problems) == ([], (f"its output {path} was replaced while it was collected",))
    assert swapped == "out" or (folder.parent / "elsewhere.csv").read_text() == "mine"
    assert (folder.parent / "elsewhere" / "c.csv").exists() == (swapped == "out")


def test_unchanged_inputs_are_no_outputs(folder: Path) -> None:
    same = InputFile(hashlib.sha256(b"a.csv").hexdigest())
    (folder / "b.csv").write_text("changed")
    collected = collect(folder, "*.csv", **{"a.csv": same, "b.csv": same})
    assert (paths(collected), collected.problems) == (["b.csv"], ())


def test_unchanged_input_is_collected_if_named_exactly(folder: Path) -> None:
    same = {"a.csv": InputFile(hashlib.sha256(b"a.csv").hexdigest())}
    hint = "name a file exactly to bring it unchanged"
    collected = collect(folder, "[a].csv", **same)
    assert collected.problems == (f"its outputs [a].csv matched only unchanged inputs (a.csv): {hint}",)
    (folder / "a.csv").write_text("a.csv")
    assert paths(collect(folder, "[a].csv", "a.csv", **same)) == ["a.csv"]


def test_outputs_with_unsupported_names_are_reported(folder: Path) -> None:
    (folder / "a\nb.csv").write_text("x")
    collected = collect(folder, "*.csv")
    assert paths(collected) == ["a.csv"]
    assert re.match(r"its output a\\nb.csv has an invalid name: .* has the character", *collected.problems)


def test_executable_bit_is_kept(folder: Path) -> None:
    (folder / "a.csv").chmod(0o755)
    files = collect(folder, "a.csv", "b.txt").files
    assert [(file.path, file.executable) for file in files] == [("a.csv", True), ("b.txt", False)]


def test_endless_and_unnamed_folders_are_reported(folder: Path) -> None:
    deep = folder / "deep"
    for _ in range(60):
        deep = deep / "d"
    deep.mkdir(parents=True)
    assert "is too deep: 39 folders are the limit" in collect(folder, "deep").problems[1]
    assert paths(collect(folder, "*.csv")) == ["a.csv"]  # patterns that do not enter it are not affected
    odd = folder / os.fsdecode(b"odd-\xff")
    odd.mkdir()
    (odd / "x").write_text("x")
    (problem,) = collect(folder, "odd*/*").problems
    assert problem.startswith(r"its output odd-\udcff/x has an invalid name")
    problem.encode()  # the reason can be encoded in a result


def test_limits_of_outputs_are_enforced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collected = collect(folder, "?.*", limit_bytes=6)
    limit = "its outputs have more than 6 bytes (outputs_limit_bytes of this worker)"
    assert (paths(collected), collected.problems) == (["a.csv"], (f"{limit}: b.txt is left out",))
    monkeypatch.setattr(outputs_module, "MAX_OUTPUT_FILES", 2)
    (folder / "a.csv").write_text("again")
    collected = collect(folder, "**/*.csv")
    assert collected.problems == ("more than 2 files match its outputs: pack them into one archive",)
    assert paths(collected) == ["a.csv", "out/c.csv"]
    monkeypatch.setattr(outputs_module, "MAX_SEEN", 3)
    assert ["more than 3 files" in problem for problem in collect(folder, "**").problems] == [True]


def test_too_large_output_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (folder / "a.csv").open("wb") as file:
        file.truncate(2**40)
    monkeypatch.setattr(Collector, "_hash", lambda *_: pytest.fail("it was read"))
    assert "outputs_limit_bytes" in collect(folder, "*.csv").problems[0]


@pytest.mark.parametrize("when", ["looking", "reading"])
def test_collection_can_be_cancelled(folder: Path, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector(folder, ("a.csv", "**"), folder.parent / "store", 2**40)
    if when == "looking":
        collector.is_unwanted = True
        monkeypatch.setattr(collector, "_move_to_store", lambda *_: pytest.fail("it looked at all"))
    else:
        with (folder / "a.csv").open("wb") as file:
            file.truncate(2**31)
        hash_of = collector._hash

        def give_up(*files: Any) -> str:
            collector.is_unwanted = True
            return hash_of(*files)

        monkeypatch.setattr(collector, "_hash", give_up)
    with pytest.raises(OutputsError, match="its outputs are no longer wanted"):
        collector.collect({})


def test_file_with_several_names_is_copied(folder: Path) -> None:
    (folder.parent / "other").hardlink_to(folder / "a.csv")
    (folder.parent / "other").chmod(0o444)
    (folder / "c.csv").hardlink_to(folder / "b.txt")
    collected = collect(folder, "a.csv", "b.txt", "c.csv")
    assert paths(collected) == ["a.csv", "b.txt", "c.csv"]
    assert (folder.parent / "other").stat().st_mode & 0o777 == 0o444
    (folder.parent / "other").chmod(0o644)
    (folder.parent / "other").write_text("changed")
    assert (folder.parent / "store" / collected.files[0].sha256).read_text() == "a.csv"


def test_unreadable_file_is_still_collected(folder: Path) -> None:
    (folder / "a.csv").chmod(0)
    assert paths(collect(folder, "a.csv")) == ["a.csv"]


async def test_outputs_of_a_successful_task_are_collected(bench: Bench, master: SmallMaster) -> None:
    run = taking(master, run_of("sh", "-c", "echo x > a.csv; echo y > b.csv"), {}, outputs=("*.csv", "a.csv"))
    result = await bench.result(run)
    assert left(bench, result) == {"a.csv": b"x\n", "b.csv": b"y\n"}
    assert result.outputs[0] == OutputFile("a.csv", hashlib.sha256(b"x\n").hexdigest(), 2)
    await until(lambda: not (bench.scratch / str(run.attempt)).exists())


async def test_outputs_of_a_failed_task_are_collected(bench: Bench, master: SmallMaster) -> None:
    script = "echo x > a.csv; exit 3"
    run = taking(master, run_of("sh", "-c", script), {}, outputs=("*.csv", "none"), optional_outputs=("*.log",))
    result = await bench.result(run)
    assert (result.outcome, result.exit_code, result.reason, result.is_final) == (Outcome.FAILED, 3, "", False)
    assert left(bench, result) == {"a.csv": b"x\n"}


async def test_outputs_of_a_timed_out_task_are_collected(bench: Bench, master: SmallMaster) -> None:
    run = taking(
        master,
        run_of("sh", "-c", "echo x > a.csv; touch begun; exec sleep 600", timeout_s=600.0),
        {},
        outputs=("*.csv",),
    )
    await bench.begins(run)
    bench.runner._attempts[run.attempt]._on_timeout()
    result = await bench.end_of(run)
    assert (result.outcome, result.reason) == (Outcome.FAILED, "timed out after 600 s")
    assert left(bench, result) == {"a.csv": b"x\n"}


async def test_outputs_of_a_cancelled_task_are_not_collected(bench: Bench, master: SmallMaster) -> None:
    run = taking(master, run_of("sh", "-c", "echo x > a.csv; exec sleep 600"), {}, outputs=("*.csv",))
    bench.runner.start(run)
    await until((bench.scratch / str(run.attempt) / "a.csv").exists)
    bench.runner.cancel(run.attempt)
    result = await bench.end_of(run)
    assert (result.outcome, result.outputs) == (Outcome.CANCELLED, ())


async def test_task_without_its_required_output_fails(
    tmp_path: Path, bench: Bench, master: SmallMaster, cache: Cache
) -> None:
    result = await bench.result(taking(master, run_of("true"), {}, outputs=("a.csv",)))
    reason = "its output a.csv does not exist (found: no other files)"
    assert (result.outcome, result.exit_code, result.reason) == (Outcome.FAILED, 0, reason)
    assert result.is_final
    shelved(bench, cache, outputs_limit_bytes=1)
    run = taking(master, run_of("sh", "-c", "echo 12345 > a.csv", task=2), {}, outputs=("a.csv",))
    result = await bench.result(run)
    assert result.outcome is Outcome.FAILED
    assert "outputs_limit_bytes" in result.reason
    assert not bench.spool.files_folder(run.attempt).exists()
