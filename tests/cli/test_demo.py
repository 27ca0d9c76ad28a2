"""The parts of the demo that need no grid; tests/live runs the whole demo."""

import struct
import subprocess
import sys
import zlib
from pathlib import Path

from loopline.demo import story
from loopline_shared.sweep import task_at


def test_picture_can_be_read_back() -> None:
    rows = [bytes([0, 1, 2]), bytes([255, 254, 253])]
    file = story.png(rows)
    assert file.startswith(b"\x89PNG\r\n\x1a\n")
    chunks = dict(_chunks(file[8:]))
    assert struct.unpack(">2I5B", chunks[b"IHDR"]) == (3, 2, 8, 3, 0, 0, 0)
    assert len(chunks[b"PLTE"]) == 256 * 3
    assert zlib.decompress(chunks[b"IDAT"]) == b"\0" + rows[0] + b"\0" + rows[1]


def test_jobs_of_the_demo_have_the_required_sizes() -> None:
    long, smaller, equal = story.JOBS
    assert (long.size or 0) > (smaller.size or 0) == equal.size
    assert long.task_count == story.STRIPS


def test_tasks_of_the_demo_need_only_loopline(tmp_path: Path) -> None:
    for job in story.JOBS:
        script = Path(task_at(job, 1).command[2])
        assert script.is_file()
        assert script.is_relative_to(Path(story.__file__).parent)


def test_a_strip_is_rows_of_pixels(tmp_path: Path) -> None:
    strip = _run("mandelbrot.py", "--strip", "320", "--of", "640", cwd=tmp_path)
    assert [len(bytes.fromhex(row)) for row in strip.split()] == [960]


def test_pi_is_about_three(tmp_path: Path) -> None:
    assert 3 < float(_run("pi.py", "--seed", "1", "--throws", "5000", cwd=tmp_path)) < 3.3


def _run(script: str, *arguments: str, cwd: Path) -> str:
    file = Path(story.__file__).parent / "tasks" / script
    return subprocess.check_output([sys.executable, "-I", file, *arguments], text=True, cwd=cwd)


def _chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    if not data:
        return []
    length = struct.unpack(">I", data[:4])[0]
    kind, body = data[4:8], data[8 : 8 + length]
    assert struct.unpack(">I", data[8 + length : 12 + length])[0] == zlib.crc32(kind + body)
    return [(kind, body), *_chunks(data[12 + length :])]
