"""A worker whose package changes on disk finishes its tasks and ends, to be started again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from loopline_shared.model import Outcome
from loopline_worker.host import own_code
from loopline_worker.host.own_code import EX_TEMPFAIL, OwnCode
from tests.worker.bench import run_of, until
from tests.worker.small_master import SmallMaster
from tests.worker.test_agent import Start, begun
from tests.worker.test_agent import start as start  # a fixture


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    (folder / "walls").mkdir(parents=True)
    for name in ("orders.py", "walls/cell.py"):
        (folder / name).write_text("LAYOUT = 1\n")
    return folder


def test_untouched_files_are_no_change(package: Path) -> None:
    code = OwnCode(package)
    for file in package.rglob("*.py"):
        os.utime(file, (1.0, 1.0))
    assert not code.has_changed(at_once=True), "a copy with the same content is no change either"


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "walls" / "cell.py").write_text("LAYOUT = 22\n"),
        lambda folder: (folder / "orders.py").unlink(),
        lambda folder: (folder / "new.py").write_text(""),
    ],
)
def test_change_of_files_is_permanent(
    package: Path, change: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_code, "_LOOK_EVERY_S", 3600.0)
    code = OwnCode(package)
    change(package)
    assert not code.has_changed(), "it checks every few seconds"
    assert code.has_changed(at_once=True)
    (package / "orders.py").write_text("LAYOUT = 1\n")
    (package / "walls" / "cell.py").write_text("LAYOUT = 1\n")
    (package / "new.py").unlink(missing_ok=True)
    assert code.has_changed()


async def test_worker_finishes_its_tasks_and_asks_to_be_started_again(
    master: SmallMaster, start: Start, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_code, "_LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(own_code, "own_code", OwnCode(package))
    agent = start()
    run = run_of("sh", "-c", "echo > begun; while [ ! -e go ]; do sleep 0.05; done")
    await master.say(run)
    await begun(agent, run)
    (package / "orders.py").write_text("LAYOUT = 22\n")
    await until(lambda: master.reports[-1].load.slots == 0)
    (agent.folder / "scratch" / str(run.attempt) / "go").touch()
    (result,) = await master.results_of(run)
    assert result.outcome is Outcome.SUCCEEDED
    assert await agent.task == EX_TEMPFAIL
