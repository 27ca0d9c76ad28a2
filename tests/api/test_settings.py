"""Settings: flags override the environment, the file and defaults; mistakes are explained."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from loopline_master.core.kernel.scheduler_settings import SchedulerSettings
from loopline_master.settings import MasterSettings
from loopline_shared.errors import LooplineError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "loopline.toml"
    path.touch()
    monkeypatch.setenv("LOOPLINE_CONFIG", str(path))
    return path


def test_flags_win_over_environment_over_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('[master]\nport = 1\nlease_s = 11\npolicy = "first-come"\n[worker]\nslots = 3\n')
    monkeypatch.setenv("LOOPLINE_PORT", "2")
    monkeypatch.setenv("LOOPLINE_LEASE_S", "12")
    settings = MasterSettings.load(port=3, lease_s=None)
    assert (settings.port, settings.lease_s, settings.policy) == (3, 12, "first-come")


def test_limits_are_merged_from_all_sources(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("[master.limits]\nmax_jobs = 5\nmax_tasks = 6\n")
    monkeypatch.setenv("LOOPLINE_LIMITS__MAX_TASKS", "7")
    limits = MasterSettings.load().limits
    assert (limits.max_jobs, limits.max_tasks, limits.max_workers) == (5, 7, 10_000)


def test_scheduler_settings_include_the_masters_choices() -> None:
    settings = MasterSettings.load(
        policy="first-come", max_replicas="unlimited", order="none", limits={"max_jobs": 9}
    )
    passed = settings.scheduler
    assert (passed.policy, passed.max_replicas, passed.order, passed.max_jobs) == ("first-come", None, "none", 9)


@pytest.mark.parametrize("name", [field.name for field in fields(SchedulerSettings)])
def test_each_scheduler_setting_is_a_master_setting_or_limit(file: Path, name: str) -> None:
    """A new one is added only in ``core/kernel/scheduler_settings.py``."""
    words = {"policy": "first-come", "order": "none", "order_within": "user", "plan_times": "bold"}
    chosen = words | {"single_task_order": "hold"}
    value = (chosen | {"peers": "on", "shares": False}).get(name, 15)
    is_limit = name in MasterSettings().limits.model_dump()
    file.write_text(f"[master{'.limits' if is_limit else ''}]\n{name} = {json.dumps(value)}\n")
    assert getattr(MasterSettings.load().scheduler, name) == (True if name == "peers" else value)
    others = replace(MasterSettings.load().scheduler, **{name: getattr(SchedulerSettings(), name)})
    assert others == replace(MasterSettings().scheduler, **{name: getattr(SchedulerSettings(), name)})


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[master]\nprot = 1", "prot: unknown setting", "did you mean port?"),
        ("[master.limits]\nmax_job = 1", "limits.max_job: unknown setting", "did you mean max_jobs?"),
        ("[mastre]\nport = 1", "unknown table [mastre]", "did you mean master?"),
        ('[master]\npolicy = "round-robbin"', "did you mean round-robin?", ""),
        ("[master]\nport = 70000", "port: has to be at most 65535, got 70000", ""),
        ("[master]\nlease_s = 5", "report_every_s must be shorter than lease_s", ""),
        ("[master]\nmax_replicas = 0", "max_replicas", ""),
        ("master = 1", "master is not a table", ""),
        ("port = ", "cannot read settings", ""),
    ],
)
def test_mistakes_in_the_file_are_explained(file: Path, text: str, message: str, hint: str) -> None:
    file.write_text(text)
    with pytest.raises(LooplineError) as mistake:
        MasterSettings.load()
    assert str(file) in mistake.value.message
    assert message in mistake.value.message
    assert hint in mistake.value.hint


@pytest.mark.parametrize(
    ("name", "value", "flags", "message"),
    [
        ("LOOPLINE_PORT", "many", {}, "LOOPLINE_PORT: "),
        ("LOOPLINE_LIMITS__MAX_JOBS", "-1", {}, "LOOPLINE_LIMITS__MAX_JOBS: "),
        ("LOOPLINE_PORT", "1", {"port": "x"}, "--port: "),
        ("LOOPLINE_PORT", "1", {"report_every_s": "0"}, "--report-every-s: "),
    ],
)
def test_mistakes_elsewhere_are_explained(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, flags: dict[str, Any], message: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(LooplineError, match=message):
        MasterSettings.load(**flags)
