import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from loopline_shared.errors import LooplineError
from loopline_worker.state.data_directory import DataDirectory


def test_name_is_generated_once(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path)
    name = first.worker_name()
    first.close()
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*-[0-9a-f]{4}", name)
    again = DataDirectory(tmp_path)
    assert again.worker_name() == name
    again.close()


def test_second_agent_on_a_folder_is_refused(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    with pytest.raises(LooplineError, match="another agent uses") as caught:
        DataDirectory(tmp_path)
    assert "--data-dir" in caught.value.hint
    directory.close()
    DataDirectory(tmp_path).close()


def test_unusable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LooplineError, match="cannot use the data folder"):
        DataDirectory(tmp_path / "file")


def test_writable_disk_is_detected(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    assert directory.is_writable()
    assert not (tmp_path / "data" / "probe").exists()
    directory.close()
    directory.folder = tmp_path / "gone"
    assert not directory.is_writable()


def test_sweep_kills_only_leftover_processes(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "a")
    (directory.scratch / "1.1.1" / "deep").mkdir(parents=True)
    sleep = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(100)"]
    mine, other = (
        subprocess.Popen(sleep, env={"LOOPLINE_SCRATCH": str(tmp_path / name / "scratch" / "1.1.1")}) for name in "ab"
    )
    try:
        killed = psutil.Process(mine.pid)
        directory.sweep()
        assert psutil.wait_procs([killed], timeout=60)[0] == [killed]
        assert other.poll() is None
        assert list(directory.scratch.iterdir()) == []
    finally:
        directory.close()
        for process in (mine, other):
            process.kill()
            process.wait()
