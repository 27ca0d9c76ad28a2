"""Conditions under which a worker ends by itself."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from loopline_shared.errors import LooplineError
from loopline_worker.departure import LEAVES_BEFORE_S, Departure
from loopline_worker.settings import WorkerSettings

NOW = 1_900_000_000.0


def departure(**chosen: object) -> Departure:
    settings = WorkerSettings.load(**chosen)
    timeouts = {"idle_timeout_s": settings.idle_timeout_s, "death_timeout_s": settings.death_timeout_s}
    return Departure(NOW, until=settings.until, **timeouts)


def test_worker_without_an_end_stays() -> None:
    one = departure()
    assert one.told is None
    assert one.reason(NOW + 1e9, is_idle=True, is_linked=False) == ""


@pytest.mark.parametrize(
    ("said", "until"), [(NOW + 60, NOW + 60), ("1900000060", NOW + 60), ("2030-03-17T17:47:40Z", NOW + 60)]
)
def test_worker_ends_shortly_before_its_deadline(said: object, until: float) -> None:
    one = departure(until=said)
    assert one.told == until - LEAVES_BEFORE_S
    assert one.reason(one.told - 0.1, is_idle=False, is_linked=True) == ""
    assert one.reason(one.told, is_idle=False, is_linked=True) == "its time is over"


def test_a_duration_counts_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    assert WorkerSettings.load(until="55m").until == NOW + 55 * 60
    with pytest.raises(LooplineError, match="expected 90s, 55m, 2h, or a time"):
        WorkerSettings.load(until="soon")


def test_worker_ends_with_its_slurm_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_END_TIME", "1900000060")
    assert departure().until == NOW + 60
    monkeypatch.setenv("SLURM_JOB_END_TIME", "UNLIMITED")
    assert departure().until is None


def test_idle_time_counts_only_while_connected() -> None:
    one = departure(idle_timeout_s=30.0, death_timeout_s=100.0)
    assert one.reason(NOW + 20, is_idle=False, is_linked=True) == ""
    assert one.reason(NOW + 40, is_idle=True, is_linked=False) == "", "a disconnected master cannot send tasks"
    assert one.reason(NOW + 69, is_idle=True, is_linked=True) == ""
    assert one.reason(NOW + 70, is_idle=True, is_linked=True) == "no task came for 30 s"


def test_worker_without_its_master_eventually_ends() -> None:
    one = departure(idle_timeout_s=30.0, death_timeout_s=100.0)
    assert one.reason(NOW + 99, is_idle=False, is_linked=False) == ""
    assert one.reason(NOW + 100, is_idle=False, is_linked=False) == "the master was away for 100 s"


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({}, ()),
        ({"SLURM_JOB_GPUS": "3"}, ()),
        ({"SLURM_JOB_ID": "7"}, ("none",)),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,2-3"}, ("0", "2", "3")),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "gpu:a100"}, ("none",)),
    ],
)
def test_worker_in_an_allocation_offers_its_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], gpus: tuple[str, ...]
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_GPUS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert WorkerSettings(data_dir=tmp_path).gpu_devices == gpus
    assert WorkerSettings(data_dir=tmp_path, gpu_devices=("1",)).gpu_devices == ("1",)
