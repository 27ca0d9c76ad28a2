"""``loopline service``: what is written and run, checked by the tools that will read it."""

import getpass
import plistlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path, PureWindowsPath
from typing import Any

import pytest

from loopline.cli.errors import Exit
from loopline.service import install, plans
from loopline_shared.errors import LooplineError
from tests.cli.conftest import Run

COMMAND = [sys.executable, "-P", "-m", "loopline_worker", "--label", 'it\'s "100%" $HOME', "--data-dir", "a b"]
NAMESPACE = {"task": "http://schemas.microsoft.com/windows/2004/02/mit/task"}
needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def written(plan: plans.Plan) -> list[str]:
    for file, content in plan.files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return [str(file) for file in plan.files]


@needs_systemd
@pytest.mark.parametrize("system", [True, False], ids=["system", "user"])
def test_systemd_finds_nothing_wrong_with_its_units(tmp_path: Path, system: bool) -> None:
    if system:
        plan = plans.for_system(COMMAND, getpass.getuser(), tmp_path)
    else:
        plan = plans.for_user(COMMAND, tmp_path, "ann")
    # a user's manager cannot be asked where there is none: the same unit files are read by the system's rules
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *written(plan)]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    ours = [line for line in verified.stderr.splitlines() if str(tmp_path) in line or "loopline" in line]
    assert ours == []
    assert verified.returncode == 0


@needs_systemd
def test_systemd_does_find_mistakes(tmp_path: Path) -> None:
    plan = plans.for_user(["/no/such/program"], tmp_path, "ann")
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *written(plan)], capture_output=True, text=True, check=False
    )
    assert "/no/such/program" in verified.stderr


def test_units_contain_what_protects_the_owner() -> None:
    unit = plans.for_user(COMMAND, Path("config"), "ann").files[Path("config/systemd/user") / plans.UNIT].decode()
    for line in ("Delegate=yes", "Slice=loopline.slice", "KillMode=mixed", "OOMScoreAdjust=500", "Nice=10"):
        assert f"\n{line}\n" in unit
    assert r"""--label "it's \"100%%\" $$HOME" --data-dir "a b" """.strip() in unit


def test_the_agent_has_a_small_share_of_a_busy_computer() -> None:
    """In an idle group it would freeze tasks seconds late; only their own group is idle (test_control_groups.py)."""
    plan = plans.for_user(COMMAND, Path("config"), "ann")
    slice_, unit = (plan.files[Path("config/systemd/user") / name].decode() for name in (plans.SLICE, plans.UNIT))
    assert [line for line in slice_.splitlines() if line.startswith("CPUWeight")] == ["CPUWeight=10"]  # of 100
    assert "CPUQuota" not in slice_ + unit, "tasks may have all that is left over"


def test_launchd_reads_its_property_list() -> None:
    (content,) = plans.for_macos(COMMAND, Path("/Users/ann"), 501).files.values()
    properties = plistlib.loads(content)
    assert properties["ProgramArguments"] == COMMAND
    assert (properties["ProcessType"], properties["LowPriorityIO"], properties["Label"]) == (
        "Background",
        True,
        plans.LABEL,
    )


def test_windows_reads_its_task() -> None:
    program = r"C:\Program Files\Python\python.exe"
    plan = plans.for_windows(
        [program, "-m", "loopline_worker", "--data-dir", r"D:\a & b"], PureWindowsPath("x"), r"LAB\ann"
    )
    (content,) = plan.files.values()
    root = ET.fromstring(content.decode("utf-16").partition("?>")[2].strip())

    def said(path: str) -> str | None:
        return root.findtext("/".join(f"task:{name}" for name in path.split("/")), namespaces=NAMESPACE)

    assert said("Actions/Exec/Command") == r"C:\Program Files\Python\pythonw.exe"
    assert said("Actions/Exec/Arguments") == r'-m loopline_worker --data-dir "D:\a & b"'
    assert said("Principals/Principal/UserId") == r"LAB\ann"
    assert said("Settings/ExecutionTimeLimit") == "PT0S"
    assert content[:2] in (b"\xff\xfe", b"\xfe\xff")  # what its declaration says


@linux_only
def test_it_is_shown_without_being_done(run: Run, tmp_path: Path) -> None:
    ran = run("service", "install", "--print", "--", "--slots", "2")
    assert ran.code == Exit.OK
    assert f"ExecStart={sys.executable} -P -m loopline_worker --slots 2" in ran.out
    assert "$ loginctl enable-linger" in ran.out
    assert not (tmp_path / "config" / "systemd").exists()


@linux_only
def test_without_systemd_it_says_so(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "SYSTEMD_RUNS", tmp_path / "nowhere")
    ran = run("service", "install")
    assert ran.code == Exit.FAILED
    assert "systemd is not running" in ran.err
    assert "loopline service install --print" in ran.err
    assert not (tmp_path / "config" / "systemd").exists()


@linux_only
def test_tasks_never_run_as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr("getpass.getuser", lambda: "root")
    with pytest.raises(LooplineError, match="must not run as root"):
        install.plan(system=True)
    monkeypatch.setenv("SUDO_USER", "ann")
    assert "\nUser=ann\n" in install.plan(system=True).files[Path("/etc/systemd/system") / plans.UNIT].decode()


@linux_only
def test_a_whole_life(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a stand-in for the system's manager."""
    commands: list[list[str]] = []

    def manager(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(install, "SYSTEMD_RUNS", tmp_path)
    monkeypatch.setattr(install.subprocess, "run", manager)
    assert run("service", "status", "--json").document["installed"] is False
    assert run("service", "install", "--json").document["running"] is True
    assert ["systemctl", "--user", "enable", plans.UNIT] in commands
    assert run("service", "status").code == Exit.OK
    assert run("service", "uninstall", "--json").document == {"installed": False, "running": False, "files": []}
    assert run("service", "status").code == Exit.FAILED
