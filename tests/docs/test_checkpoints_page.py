"""Programs of the page about checkpoints: killed in the middle, each ends with the output of an uninterrupted run."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from loopline_shared.model import AttemptId, Outcome
from loopline_shared.protocol.checkpoints import CheckpointOrder
from loopline_shared.protocol.worker_link import Run
from tests.worker.bench import until
from tests.worker.conftest import master
from tests.worker.small_master import SmallMaster
from tests.worker.test_agent import Start, start
from tests.worker.test_checkpoints import patient, taken

__all__ = ["master", "patient", "start"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the last checkpoint is taken")
PAGE = Path(__file__).parents[2] / "docs" / "checkpoints.md"
OUTPUT = b"".join(b"step %d: %d\n" % (step, step * (step + 1) // 2) for step in range(1, 301))


def program(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return str(found)


def in_sh(folder: Path) -> tuple[str, ...]:
    (folder / "solve").write_text(program("sh"), "utf-8")
    return ("/bin/sh", str(folder / "solve"))


def in_c(folder: Path) -> tuple[str, ...]:
    (folder / "solve.c").write_text(program("c"), "utf-8")
    subprocess.run(["cc", "-o", "solve", "solve.c"], cwd=folder, check=True)
    return (str(folder / "solve"),)


def in_python(folder: Path) -> tuple[str, ...]:
    (folder / "solve.py").write_text(program("python"), "utf-8")
    return (sys.executable, str(folder / "solve.py"))


PROGRAMS = [in_sh, in_python, *([in_c] if shutil.which("cc") else [])]


@pytest.mark.parametrize("write", PROGRAMS)
async def test_killed_program_ends_with_the_output_of_an_uninterrupted_run(
    master: SmallMaster,
    start: Start,
    tmp_path: Path,
    write: Callable[[Path], tuple[str, ...]],
) -> None:
    def attempt(number: int) -> Run:
        return Run(AttemptId(1, 1, number), command, {}, {}, checkpoint=CheckpointOrder(every_s=0.05))

    command = write(tmp_path)
    worker = start()
    await master.say(attempt(1))
    await until(lambda: taken(master))
    await worker.crash()
    start()
    await master.results_of(attempt(1))
    await master.say(attempt(2))
    (result,) = await master.results_of(attempt(2))
    content = result.stdout.data if result.stdout.sha256 is None else master.blobs[result.stdout.sha256]
    assert (result.outcome, content) == (Outcome.SUCCEEDED, OUTPUT)
    assert any(one.attempt.number == 2 and one.times == 1 for one in taken(master))


def test_python_program_continues_without_a_grid(tmp_path: Path) -> None:
    code = program("python").replace("300", "3")
    command = (sys.executable, tmp_path / "solve.py")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOOPLINE_")}
    (tmp_path / "solve.py").write_text(code.replace("step < 3", "step < 2"), "utf-8")
    assert subprocess.check_output(command, env=environment) == OUTPUT[:20]
    (tmp_path / "solve.py").write_text(code, "utf-8")
    assert subprocess.check_output(command, env=environment) == b"step 3: 6\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["solve.checkpoint", "solve.py"]
