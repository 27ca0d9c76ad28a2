"""What an agent that is killed leaves to the next one."""

from pathlib import Path

import pytest

from shared.model import AttemptId
from shared.protocol.messages import Run
from worker import inbox as inbox_module
from worker.inbox import Inbox

A, B, C = (AttemptId(1, task, 1) for task in (1, 2, 3))


def run(attempt: AttemptId, command: str = "true") -> Run:
    return Run(attempt, (command,), {"i": 1, "name": "ä\n"}, {"KEY": "value"}, timeout_s=1.5)


def reopened(inbox: Inbox, path: Path) -> Inbox:
    inbox.close()
    return Inbox(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "inbox.jsonl"


async def test_what_came_is_there_again_in_its_order_until_it_is_over(path: Path) -> None:
    inbox = Inbox(path)
    inbox.took([run(B), run(A)])
    await inbox.settle()
    inbox.took([run(C), run(A, "another")])
    inbox.began(B)
    inbox = reopened(inbox, path)
    assert inbox.left() == ([run(A), run(C)], [B])
    inbox.over([B, C])
    inbox = reopened(inbox, path)
    assert inbox.left() == ([run(A)], [])
    inbox.over([A])
    assert path.stat().st_size == 0, "an idle worker's is empty"
    assert reopened(inbox, path).left() == ([], [])


async def test_it_is_forced_to_the_disk_once_for_all_that_came_together(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox, forced = Inbox(path), []
    monkeypatch.setattr(inbox_module.os, "fsync", forced.append)
    inbox.took([run(A), run(B), run(C)])
    await inbox.settle()
    await inbox.settle()
    inbox.began(A)
    inbox.over([A])
    await inbox.settle()
    assert len(forced) == 1


async def test_a_line_that_was_never_finished_is_passed_over_and_does_not_spoil_the_next(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox(path)
    inbox.took([run(A)])
    inbox.close()
    with path.open("ab") as file:
        file.write(b'{"run":{"attempt":"1.2.1","comm')
    inbox = Inbox(path)
    assert "passed over" in caplog.text
    inbox.took([run(C)])
    assert reopened(inbox, path).left() == ([run(A), run(C)], [])


async def test_it_does_not_grow_with_what_is_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "_WORTH_CLEANING_BYTES", 2000)
    inbox = Inbox(path)
    inbox.took([run(A)])
    for number in range(1, 200):
        inbox.took([run(AttemptId(2, number, 1))])
        inbox.over([AttemptId(2, number, 1)])
    assert path.stat().st_size < 4000
    assert reopened(inbox, path).left() == ([run(A)], [])


async def test_a_disk_that_takes_nothing_is_an_oserror_and_nothing_is_half_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox(path)
    inbox.took([run(A)])
    whole = path.read_bytes()

    class Full:
        def write(self, lines: bytes) -> int:
            return real.write(lines[:10])

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    real = inbox._file
    monkeypatch.setattr(inbox, "_file", Full())
    with pytest.raises(OSError, match="No space"):
        inbox.took([run(B)])
    assert path.read_bytes() == whole
    assert inbox.left() == ([run(A)], [])
