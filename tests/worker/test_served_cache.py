"""A cached file not checked since the agent's start is served piece by piece while it is checked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loopline_shared.pieces import PieceList
from loopline_worker.files.cache import Cache
from loopline_worker.files.downloads import Downloads
from loopline_worker.files.receiving import NetworkError
from loopline_worker.link.http_client import HttpClient
from loopline_worker.peers import master_files
from loopline_worker.peers.growing_file import GrowingFile
from loopline_worker.peers.peering import Peering
from loopline_worker.settings import WorkerSettings
from loopline_worker.task_group import TaskGroup
from tests.worker.bench import until
from tests.worker.peer_bench import PIECE, content_of, list_of, name_of

CONTENT = content_of(9)
NAME = name_of(CONTENT)


@pytest.fixture
async def tasks() -> AsyncIterator[TaskGroup]:
    async with TaskGroup() as group:
        yield group


def serving(tmp_path: Path, tasks: TaskGroup, content: bytes) -> tuple[Peering, Cache]:
    """A worker with this content in its cache, under the name of the correct content."""
    settings = WorkerSettings(master="http://127.0.0.1:9", data_dir=tmp_path)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / NAME).write_bytes(content)
    http: Any = HttpClient(settings)
    cache = Cache(tmp_path / "cache", 2**30, Downloads(http))
    peering = Peering("ant", settings, http, tasks)
    peering.serve_from(cache)
    return peering, cache


def masters_list(monkeypatch: pytest.MonkeyPatch, found: PieceList | None) -> None:
    def pieces_of(sha256: str) -> PieceList:
        if found is None:
            raise NetworkError("the master is away")
        return found

    monkeypatch.setattr(master_files, "MasterFiles", lambda http: SimpleNamespace(pieces_of=pieces_of))


def found_in(peering: Peering) -> GrowingFile:
    growing = peering.find(NAME)
    assert growing
    return growing


async def test_pieces_are_served_while_later_ones_are_still_checked(
    tmp_path: Path, tasks: TaskGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    peering, cache = serving(tmp_path, tasks, CONTENT)
    masters_list(monkeypatch, list_of(CONTENT))
    may_go_on, is_sound = threading.Event(), PieceList.is_sound

    def slow(pieces: PieceList, number: int, piece: bytes) -> bool:
        assert number < 2 or may_go_on.wait(60)
        return is_sound(pieces, number, piece)

    monkeypatch.setattr(PieceList, "is_sound", slow)
    growing = found_in(peering)
    try:
        assert await asyncio.to_thread(growing.wait_for, 1, 60.0)
        assert growing.have == 2
    finally:
        may_go_on.set()
    assert await asyncio.to_thread(growing.wait_for, growing.layout.count - 1, 60.0)
    await until(lambda: NAME in cache._known)
    monkeypatch.setattr(PieceList, "is_sound", lambda *_: pytest.fail("it was checked a moment ago"))
    assert await asyncio.to_thread(found_in(peering).wait_for, growing.layout.count - 1, 60.0)
    assert NAME in cache.sizes


async def test_wrong_piece_is_not_served_and_its_file_is_removed(
    tmp_path: Path, tasks: TaskGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = bytearray(CONTENT)
    wrong[4 * PIECE + 5] ^= 1
    peering, cache = serving(tmp_path, tasks, bytes(wrong))
    masters_list(monkeypatch, list_of(CONTENT))
    growing = found_in(peering)
    await until(lambda: growing.is_abandoned)
    assert growing.have == 4
    assert NAME not in cache.sizes


@pytest.mark.parametrize("is_right", [True, False])
async def test_whole_file_is_checked_first_without_a_piece_list(
    tmp_path: Path, tasks: TaskGroup, monkeypatch: pytest.MonkeyPatch, is_right: bool
) -> None:
    peering, cache = serving(tmp_path, tasks, CONTENT if is_right else CONTENT[:-1] + b"x")
    masters_list(monkeypatch, None)
    growing = found_in(peering)
    await until(lambda: growing.is_complete or growing.is_abandoned)
    assert (growing.is_complete, NAME in cache.sizes) == (is_right, is_right)
