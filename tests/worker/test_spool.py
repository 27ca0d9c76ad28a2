from pathlib import Path

import pytest

from shared.model import AttemptId, Outcome, Output, Result
from worker.spool import Spool

FIRST, SECOND = (
    Result(AttemptId(1, task, 1), Outcome.FAILED, -9, "why", 1.5, 0.5, 9, Output(3, data=b"\xff\x00a"))
    for task in (1, 2)
)


async def test_what_was_put_is_there_after_a_restart_until_it_is_forgotten(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10**6)
    await spool.put(SECOND)
    await spool.put(FIRST)
    assert Spool(tmp_path, 10**6).load() == [SECOND, FIRST]
    spool.forget([SECOND.attempt, AttemptId(9, 9, 9)])
    assert Spool(tmp_path, 10**6).load() == [FIRST]


async def test_a_torn_or_alien_file_is_moved_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = Spool(tmp_path, 10**6)
    await spool.put(FIRST)
    whole = (tmp_path / "1.1.1.json").read_bytes()
    (tmp_path / "1.2.1.json").write_bytes(whole[:40])
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "1.3.1.json").write_bytes(whole)
    assert spool.load() == [FIRST]
    assert sorted(file.name for file in (tmp_path / "bad").iterdir()) == ["1.2.1.json", "1.3.1.json", "notes.json"]
    assert "it is about attempt 1.1.1" in caplog.text


async def test_leftovers_of_a_crash_are_removed_and_long_output_stays(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10**6)
    await spool.put(FIRST)
    for name in ("1.1.1.stdout", "1.2.1.stdout", "1.2.1.tmp"):
        (tmp_path / name).write_bytes(b"x" * 100)
    spool.load()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1.1.1.json", "1.1.1.stdout"]
    spool.forget([FIRST.attempt])
    assert list(tmp_path.iterdir()) == []


async def test_it_is_full_by_what_is_in_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    (tmp_path / "1.1.1.stderr").write_bytes(b"x" * 1000)
    await spool.put(FIRST)
    assert spool.is_full
    spool.forget([FIRST.attempt])
    assert (spool.is_full, spool.size_bytes) == (False, 0)
    await spool.put(SECOND)
    again = Spool(tmp_path, 1000)
    again.load()
    assert again.size_bytes == spool.size_bytes > 0


async def test_a_disk_that_takes_nothing_is_an_oserror(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", 1000)
    (tmp_path / "spool").rmdir()
    with pytest.raises(OSError, match="No such file"):
        await spool.put(FIRST)
