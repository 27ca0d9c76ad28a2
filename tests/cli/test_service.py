"""``loopline service``: files and commands, checked by the tools that read them."""

import configparser
import os
import plistlib
import shutil
import stat
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from typing import Any

import pytest

from loopline.cli.errors import Exit
from loopline.service import install, installed, master_plans, plans, trusted
from loopline_shared.errors import LooplineError
from tests.cli.conftest import Run

ARGUMENTS = ("--label", 'it\'s "100%" $HOME', "--data-dir", "a b")
COMMAND = [sys.executable, "-P", "-m", "loopline", "worker", *ARGUMENTS]
STOP_AND_START = (["disable", "--now"], ["restart"])
NAMESPACE = {"task": "http://schemas.microsoft.com/windows/2004/02/mit/task"}
needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def written(plan: plans.Plan) -> list[str]:
    for file, content in plan.files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return [str(file) for file in plan.files]


@needs_systemd
@pytest.mark.parametrize("kind", ["system", "user", "master of the system", "master of a user"])
def test_systemd_accepts_the_units(tmp_path: Path, kind: str) -> None:
    plan = {
        "system": lambda: plans.for_system_with_users(COMMAND, ["/usr/bin/python3"], 2, tmp_path),
        "user": lambda: plans.for_user(COMMAND, tmp_path, "ann"),
        "master of the system": lambda: master_plans.master_for_system(COMMAND, etc=tmp_path),
        "master of a user": lambda: master_plans.master_for_user(COMMAND, tmp_path, "ann"),
    }[kind]()
    # without a user manager, the same unit files are checked by the rules of the system manager
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *written(plan)]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    ours = [line for line in verified.stderr.splitlines() if str(tmp_path) in line or "loopline" in line]
    assert ours == []
    assert verified.returncode == 0


@needs_systemd
def test_systemd_detects_errors_in_units(tmp_path: Path) -> None:
    plan = plans.for_user(["/no/such/program"], tmp_path, "ann")
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *written(plan)], capture_output=True, text=True, check=False
    )
    assert "/no/such/program" in verified.stderr


def test_units_contain_settings_that_protect_the_owner() -> None:
    unit = plans.for_user(COMMAND, Path("config"), "ann").files[Path("config/systemd/user") / plans.UNIT].decode()
    for line in ("Delegate=yes", "Slice=loopline.slice", "KillMode=mixed", "OOMScoreAdjust=500", "Nice=10"):
        assert f"\n{line}\n" in unit
    assert r"""--label "it's \"100%%\" $$HOME" --data-dir "a b" """.strip() in unit


def test_master_of_the_system_is_hardened_and_that_of_a_user_starts_without_namespaces() -> None:
    for user in (None, "ann"):
        unit = master_plans.master_for_system(COMMAND, user, Path("etc"))
        text = unit.files[Path("etc/systemd/system") / master_plans.UNIT].decode()
        for line in ("PrivateTmp=yes", "ProtectSystem=full", "NoNewPrivileges=yes", "RestrictNamespaces=yes"):
            assert f"\n{line}\n" in text
        assert ("ProtectHome" in text) is (user is None), "ann's master keeps its data in her home"
    of_user = master_plans.master_for_user(COMMAND, Path("config"), "ann")
    assert "Protect" not in of_user.files[Path("config/systemd/user") / master_plans.UNIT].decode()


def test_the_agent_has_a_normal_weight() -> None:
    """With a small weight it would freeze tasks late; only the tasks' group is idle (test_control_groups.py)."""
    plan = plans.for_user(COMMAND, Path("config"), "ann")
    slice_, unit = (plan.files[Path("config/systemd/user") / name].decode() for name in (plans.SLICE, plans.UNIT))
    assert [line for line in slice_.splitlines() if line.startswith("CPUWeight")] == ["CPUWeight=100"]
    assert "CPUQuota" not in slice_ + unit, "tasks may use all spare CPU time"


def test_launchd_reads_its_property_list() -> None:
    (content,) = plans.for_macos(COMMAND, Path("/Users/ann"), 501).files.values()
    properties = plistlib.loads(content)
    assert properties["ProgramArguments"] == COMMAND
    assert properties["EnvironmentVariables"]["LOOPLINE_LOG_FILE"] == "/Users/ann/Library/Logs/loopline-worker.log"
    assert (properties["ProcessType"], properties["LowPriorityIO"], properties["Label"]) == (
        "Background",
        True,
        plans.LABEL,
    )


def test_windows_reads_its_task() -> None:
    program = r"C:\Program Files\Python\python.exe"
    plan = plans.for_windows(
        [program, "-P", "-m", "loopline", "worker", "--data-dir", r"D:\a & b"], PureWindowsPath("x"), r"LAB\ann"
    )
    (content,) = plan.files.values()
    root = ET.fromstring(content.decode("utf-16").partition("?>")[2].strip())

    def said(path: str) -> str | None:
        return root.findtext("/".join(f"task:{name}" for name in path.split("/")), namespaces=NAMESPACE)

    assert said("Actions/Exec/Command") == r"C:\Program Files\Python\pythonw.exe"
    assert said("Actions/Exec/Arguments") == r'-P -m loopline worker --data-dir "D:\a & b"'
    assert said("Principals/Principal/UserId") == r"LAB\ann"
    assert said("Settings/ExecutionTimeLimit") == "PT0S"
    assert content[:2] in (b"\xff\xfe", b"\xfe\xff")  # matches the declared encoding


@linux_only
def test_print_shows_the_files_without_changes(run: Run, tmp_path: Path) -> None:
    ran = run("service", "install", "--print", "--", "--slots", "2")
    assert ran.code == Exit.OK
    command = Path(sys.executable).with_name("loopline")
    assert f"ExecStart={command} worker --slots 2" in ran.out
    assert "$ loginctl enable-linger" in ran.out
    assert not (tmp_path / "config" / "systemd").exists()


@linux_only
@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (["--master", "--print", "--", "--port", "7470"], "master --port 7470"),
        (["--print", "--master"], "master"),
        (["--role", "master", "--print"], "master"),
        (["--print", "--", "--master", "http://lab-pc:7461"], "worker --master http://lab-pc:7461"),
    ],
)
def test_role_of_a_master_differs_from_its_address_option(run: Run, words: list[str], runs: str) -> None:
    ran = run("service", "install", *words)
    assert f"loopline {runs}\n" in ran.out, ran.err


def test_an_address_that_no_service_has_is_refused(run: Run) -> None:
    ran = run("service", "install", "--master", "http://lab-pc:7461", "--print")
    assert ran.code == Exit.USAGE
    assert "loopline service install -- --master http://lab-pc:7461" in ran.err


@linux_only
def test_missing_systemd_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "SYSTEMD_RUNS", tmp_path / "nowhere")
    ran = run("service", "install")
    assert ran.code == Exit.FAILED
    assert "systemd is not running" in ran.err
    assert "loopline service install --print" in ran.err
    assert not (tmp_path / "config" / "systemd").exists()


@linux_only
def test_tasks_never_run_as_root() -> None:
    with pytest.raises(LooplineError, match="must not run as root"):
        install.plan(system=True, user="root")
    of_ann = install.plan(system=True, user="ann").files[Path("/etc/systemd/system") / plans.UNIT].decode()
    assert "\nUser=ann\n" in of_ann
    assert "Capabilities" not in of_ann


@linux_only
def test_a_service_of_the_system_has_a_user_for_each_slot() -> None:
    plan = install.plan(system=True, arguments=["--slots", "2"])
    unit = plan.files[Path("/etc/systemd/system") / plans.UNIT].decode()
    assert "\nUser=loopline\nAmbientCapabilities=CAP_SETUID CAP_SETGID CAP_KILL\n" in unit
    (file, users), (alarm, _), (rules, permissions), _ = plan.beside.items()
    assert users.count(b"\nu loopline-task-") >= 2
    assert plan.install[0] == ["systemd-sysusers", str(file)]
    assert plan.install[1] == ["systemd-tmpfiles", "--create", str(alarm)]
    assert rules == Path("/etc/polkit-1/rules.d/60-loopline.rules")
    assert b'subject.user == "loopline"' in permissions
    _, code = permissions.split(b"polkit.addRule")
    assert b"shutdown" not in code, "it may not prevent a shutdown"


@linux_only
def test_files_of_the_system_are_readable_and_go_with_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit, rules = tmp_path / "unit", tmp_path / "rules"
    for_ann = plans.Plan({unit: b"x"}, [], [], ["true"])
    monkeypatch.setattr(
        install,
        "plan",
        lambda system=False, user=None, *_, **__: for_ann if user else replace(for_ann, beside={rules: b""}),
    )
    monkeypatch.setattr(install, "SYSTEMD_RUNS", tmp_path)
    monkeypatch.setattr(trusted, "check", lambda *files: None)
    before = os.umask(0o077)
    try:
        install.install(system=True)
        assert [stat.S_IMODE(file.stat().st_mode) for file in (unit, rules)] == [0o644, 0o644]
        install.install(system=True, user="ann")
    finally:
        os.umask(before)
    assert not rules.exists()


@linux_only
def test_privileged_service_uses_only_files_writable_by_root(tmp_path: Path) -> None:
    trusted.check(Path("/bin/sh"))
    program = tmp_path / "program"
    program.touch()
    program.chmod(0o777)
    with pytest.raises(LooplineError, match=rf"others than root may change {program}") as refused:
        trusted.check(program)
    assert "/opt/loopline" in refused.value.hint


@linux_only
@pytest.mark.parametrize("user", [None, "ann"])
def test_desktops_start_a_reporter_for_a_service_of_the_system(
    monkeypatch: pytest.MonkeyPatch, user: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/a lab/50%/python3")
    entry = install.plan(system=True, user=user).beside[Path("/etc/xdg/autostart/loopline-reporter.desktop")]
    reader = configparser.RawConfigParser()
    reader.read_string(entry.decode())
    assert reader["Desktop Entry"]["exec"] == '"/opt/a lab/50%%/python3" -P -m loopline_worker.presence'
    assert not install.plan().beside, "a service of the user sees the desktop itself"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Commands that were given to a stand-in for the system's manager."""
    commands: list[list[str]] = []

    def manager(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(install, "SYSTEMD_RUNS", tmp_path)
    monkeypatch.setattr("subprocess.run", manager)
    return commands


@linux_only
def test_service_is_installed_started_stopped_and_removed(run: Run, commands: list[list[str]]) -> None:
    assert run("service", "status", "--json").document["installed"] is False
    assert run("service", "install", "--json").document["running"] is True
    assert ["systemctl", "--user", "enable", plans.UNIT] in commands
    assert run("service", "status").code == Exit.OK
    assert run("service", "uninstall", "--json").document == {
        "installed": False, "running": False, "files": [],
    }  # fmt: skip
    assert run("service", "status").code == Exit.FAILED


@linux_only
def test_without_a_console_script_the_service_starts_the_public_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    unit = install.plan().files[tmp_path / "config/systemd/user" / plans.UNIT].decode()
    assert f"\nExecStart={tmp_path}/python3 -P -m loopline worker\n" in unit


@linux_only
def test_the_service_command_is_a_worker() -> None:
    """The command of the unit must run from any folder."""
    command = install._command(["--help"])
    helped = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert (helped.returncode, "--slots" in helped.stdout) == (0, True), helped.stderr


# Installed services, read back


def plans_of(command: list[str], tmp_path: Path) -> dict[str, plans.Plan]:
    return {
        "user": plans.for_user(command, tmp_path, "ann"),
        "system": plans.for_system(command, "ann", tmp_path / "system"),
        "users": plans.for_system_with_users(command, ["/usr/bin/python3", "-I"], 2, tmp_path / "etc"),
        "macos": plans.for_macos(command, tmp_path, 501),
        "windows": plans.for_windows(command, PureWindowsPath(tmp_path), "ann"),
    }


@pytest.mark.parametrize("kind", ["user", "system", "users", "macos", "windows"])
def test_installed_service_is_read_back_with_its_arguments(kind: str, tmp_path: Path) -> None:
    plan = plans_of(COMMAND, tmp_path)[kind]
    for file, content in plan.files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    found = installed.find(plan.files)
    assert found
    assert kind == "windows" or found.arguments == ARGUMENTS  # a quote within a word: untested on Windows
    assert found.user == ("ann" if kind == "system" else "")


@pytest.mark.parametrize("command", [["/opt/venv/bin/loopline", "worker"], ["/usr/bin/env", "loopline", "worker"]])
def test_service_of_the_loopline_command_is_recognised(tmp_path: Path, command: list[str]) -> None:
    plan = plans.for_user([*command, "--slots", "2"], tmp_path, "ann")
    written(plan)
    assert installed.find(plan.files) == installed.Installed(("--slots", "2"))


def test_service_of_another_program_is_not_ours(tmp_path: Path) -> None:
    plan = plans.for_user(["/usr/bin/sleep", "1"], tmp_path, "ann")
    written(plan)
    assert installed.find(plan.files) is None


@linux_only
def test_installing_over_a_service_replaces_it(run: Run, commands: list[list[str]], tmp_path: Path) -> None:
    plan = plans.for_user([sys.executable, "-P", "-m", "loopline", "worker"], tmp_path / "config", "ann")
    written(plan)
    run("service", "install", "--", "--slots", "2")
    stop, start = (commands.index(["systemctl", "--user", *words, plans.UNIT]) for words in STOP_AND_START)
    assert stop < start, "the old service is stopped first"
    assert " worker --slots 2\n" in (tmp_path / "config/systemd/user" / plans.UNIT).read_text()
