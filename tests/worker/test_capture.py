"""Captured streams: complete within the limit, otherwise the beginning, the end, and the size of the gap."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_shared.model import INLINE_LIMIT_BYTES
from loopline_worker.attempts.capture import Capture

SIZES = st.lists(st.integers(1, 9_000), max_size=12)
LIMITS = st.sampled_from([0, 1, 7, 100, INLINE_LIMIT_BYTES, INLINE_LIMIT_BYTES + 1, 10_001])


def fail(error: OSError) -> None:
    raise error


def fed(path: Path, limit: int, pieces: list[bytes]) -> tuple[Capture, bytes]:
    capture = Capture(lambda: path, limit, fail)
    for piece in pieces:
        capture.feed(piece)
    return capture, b"".join(pieces)


@given(SIZES, LIMITS)
def test_beginning_and_end_are_kept(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int) -> None:
    path = tmp_path_factory.getbasetemp() / "out"
    pieces = [bytes((place + n) % 251 for n in range(size)) for place, size in enumerate(sizes)]
    capture, text = fed(path, limit, pieces)
    output = capture.finish(whole=True)
    kept = path.read_bytes() if output.sha256 else output.data
    assert (output.size_bytes, output.cut) == (len(text), len(text) > limit)
    assert not output.sha256 or output.sha256 == hashlib.sha256(kept).hexdigest()
    if len(text) <= limit:
        assert kept == text
        return
    half = limit - limit // 2
    assert kept[:half] == text[:half]
    if limit > 1:
        assert (
            kept[half:] == b"\n[... %d bytes are not kept here ...]\n" % (len(text) - limit) + text[-(limit // 2) :]
        )


async def test_follower_of_a_stream_gets_its_end(tmp_path: Path) -> None:
    capture, text = fed(tmp_path / "out", 10_000, [b"a" * 9_000])
    assert await capture.read(5_000, 10_000) == text[5_000:]
    capture.feed(b"b" * 9_000)
    waiting = asyncio.create_task(capture.read(5_000, 100_000))
    await asyncio.sleep(0)
    assert not waiting.done(), "bytes that may be overwritten are not shown"
    capture.finish(whole=True)
    assert (await waiting).startswith(b"\n[... 8000 bytes are not kept here ...]\n")
    assert (await waiting).endswith(b"b" * 5_000)


def test_beginning_is_kept_of_a_stopped_task(tmp_path: Path) -> None:
    capture, _ = fed(tmp_path / "out", 10_000, [b"a" * 20_000])
    assert capture.finish(whole=False).data == b"a" * INLINE_LIMIT_BYTES
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"", ""),
        (b"\n \n", ""),
        (b"Traceback\nValueError: no\n\n", "ValueError: no"),
        (b"x" * 5_000 + b"\nlast", "last"),
        (b"\x1b[31mred\x00\xff\n", "[31mred\N{REPLACEMENT CHARACTER}"),
        (b"y" * 5_000, "y" * 300),
    ],
)
def test_last_line_is_found(tmp_path: Path, text: bytes, line: str) -> None:
    capture, _ = fed(tmp_path / "out", 100, [text[:3], text[3:]] if text else [])
    assert capture.last_line == line


@given(SIZES, SIZES, LIMITS)
def test_restored_capture_ends_like_an_uninterrupted_capture(
    tmp_path_factory: pytest.TempPathFactory, first: list[int], second: list[int], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("restored")
    pieces = [bytes([65 + number % 26]) * size for number, size in enumerate([*first, *second])]
    whole, _ = fed(folder / "whole", limit, pieces)
    before, _ = fed(folder / "before", limit, pieces[: len(first)])
    after = Capture(lambda: folder / "after", limit, fail)
    after.restore(before.content(), before.size_bytes)
    assert after.content() == before.content()
    for piece in pieces[len(first) :]:
        after.feed(piece)
    assert after.finish(whole=True) == whole.finish(whole=True)
