"""Events of a checkpoint folder and of output pipes: whether output was written since the last rename."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loopline_worker.checkpoints.save_events import SaveEvents
from tests.worker.bench import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


class Watched:
    """A folder and a pipe, as a task has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.news: list[bool] = []
        self.written_bytes = 0
        self.read_end, self.write_end = os.pipe()
        self.events = SaveEvents(lambda: self.news.append(True), lambda: self.written_bytes)
        self.events.open(folder)

    def write(self) -> None:
        os.write(self.write_end, b"x")
        self.written_bytes += 1

    def save(self, name: str = "x") -> None:
        (self.folder / f"{name}.new").write_text("new")
        (self.folder / f"{name}.new").rename(self.folder / name)

    def matches(self) -> bool:
        self.events.read()
        return self.events.output_matches


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.events.close()
    os.close(watched.read_end)
    os.close(watched.write_end)


@pytest.mark.parametrize("sees_pipe", [True, False])
async def test_output_matches_only_if_none_follows_the_last_rename(watched: Watched, sees_pipe: bool) -> None:
    if sees_pipe:
        watched.events.open_streams([watched.read_end])
    assert watched.matches(), "the program may write in place, and never rename"
    watched.write()
    watched.save()
    assert watched.matches()
    watched.write()
    assert not watched.matches()
    watched.save()
    assert watched.matches()


async def test_output_before_the_watch_counts_as_written_after_the_rename(watched: Watched) -> None:
    watched.save()
    watched.write()
    watched.events.open_streams([watched.read_end])
    assert not watched.matches()


async def test_silent_program_may_save_before_its_output_is_watched(watched: Watched) -> None:
    watched.save()
    assert watched.matches()
    watched.events.open_streams([watched.read_end])
    assert watched.matches()
    watched.write()
    assert not watched.matches()


async def test_unread_output_counts(watched: Watched) -> None:
    watched.save()
    assert watched.matches()
    os.write(watched.write_end, b"x")
    watched.events.open_streams([watched.read_end])
    assert not watched.matches()


async def test_unfinished_files_are_no_change(watched: Watched) -> None:
    (watched.folder / "x.new").write_text("x")
    (watched.folder / "y.new").mkdir()
    watched.events.read()
    assert not watched.events.is_changed
    watched.save()
    await until(lambda: watched.news)
    assert watched.events.is_changed
    watched.events.settle()
    assert not watched.events.is_changed


async def test_removal_is_a_change_only_after_a_rename(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("old")
    watched = Watched(tmp_path)
    (tmp_path / "a").unlink()
    watched.events.read()
    assert not watched.events.is_changed
    watched.save()
    watched.events.read()
    watched.events.settle()
    (tmp_path / "b").unlink()
    watched.events.read()
    assert watched.events.is_changed
    watched.events.close()


async def test_lost_events_count_as_a_change_with_output(watched: Watched) -> None:
    watched.events.open_streams([watched.read_end])
    watched.save()
    assert watched.matches()
    watched.events.settle()
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(most // 2 + 10):
        os.mkdir(watched.folder / f"{number}.new")  # noqa: PTH102 - many
        os.rmdir(watched.folder / f"{number}.new")  # noqa: PTH106
    assert not watched.matches()
    assert watched.events.is_changed
