"""Limits of containers on made-up /proc and /sys, and the arithmetic of spare CPU."""

import os
from pathlib import Path

import pytest

from loopline_worker.host.computer import Cgroup, Computer, facts, is_contained
from loopline_worker.host.load import Meter

GIB = 2**30


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return root


def version_2(root: Path, group: str, **files: str) -> Path:
    tree(root, {"proc/self/cgroup": f"0::{group}\n", "sys/fs/cgroup/cgroup.controllers": "cpu memory\n"})
    return tree(
        root / "sys/fs/cgroup" / group.strip("/"), {name.replace("_", "."): text for name, text in files.items()}
    )


def found(root: Path) -> Cgroup:
    cgroup = Cgroup.find(root)
    assert cgroup
    return cgroup


def test_cgroup_v2_limits_in_a_container_with_its_own_namespace(tmp_path: Path) -> None:
    version_2(
        tmp_path, "/", cpu_max="150000 100000\n", cpu_stat="usage_usec 2500000\nuser_usec 1\n",
        memory_max=f"{GIB}\n", memory_current=f"{GIB // 2}\n", memory_stat=f"anon 1\ninactive_file {GIB // 4}\n",
    )  # fmt: skip
    cgroup = found(tmp_path)
    assert (cgroup.cpu_limit(), cgroup.cpu_s()) == (1.5, 2.5)
    assert (cgroup.memory_limit_bytes(), cgroup.memory_left_bytes()) == (GIB, GIB * 3 // 4)


def test_cgroup_v2_without_limits(tmp_path: Path) -> None:
    version_2(tmp_path, "/", cpu_max="max 100000\n", memory_max="max\n", memory_current="5\n")
    cgroup = found(tmp_path)
    assert cgroup.cpu_limit() is None
    assert cgroup.memory_limit_bytes() is None
    assert cgroup.memory_left_bytes() is None


def test_tighter_limit_of_a_parent_group_counts(tmp_path: Path) -> None:
    version_2(tmp_path, "/pod/box", cpu_max="max 100000", cpu_stat="usage_usec 1000000")
    tree(tmp_path / "sys/fs/cgroup/pod", {"cpu.max": "200000 100000", "memory.max": "100", "memory.current": "30"})
    cgroup = found(tmp_path)
    assert (cgroup.cpu_limit(), cgroup.cpu_s(), cgroup.memory_left_bytes()) == (2.0, 1.0, 70)


VERSION_1 = "12:cpu,cpuacct:/docker/abc\n7:memory:/docker/abc\n1:name=systemd:/docker/abc\n"


@pytest.mark.parametrize("own", ["", "docker/abc/"], ids=["mounted as the root", "in the whole hierarchy"])
def test_cgroup_v1_limits(tmp_path: Path, own: str) -> None:
    v1 = {
        f"cpu/{own}cpu.cfs_quota_us": "50000", f"cpu/{own}cpu.cfs_period_us": "100000",
        f"cpuacct/{own}cpuacct.usage": "3000000000\n",
        f"memory/{own}memory.limit_in_bytes": f"{GIB}", f"memory/{own}memory.usage_in_bytes": "1000",
        f"memory/{own}memory.stat": "cache 1\ntotal_inactive_file 400\n",
    }  # fmt: skip
    tree(tmp_path, {"proc/self/cgroup": VERSION_1} | {f"sys/fs/cgroup/{name}": text for name, text in v1.items()})
    cgroup = found(tmp_path)
    assert (cgroup.cpu_limit(), cgroup.cpu_s()) == (0.5, 3.0)
    assert (cgroup.memory_limit_bytes(), cgroup.memory_left_bytes()) == (GIB, GIB - 600)


def test_cgroup_v1_without_limits(tmp_path: Path) -> None:
    v1 = {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000",
          "memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "1000"}  # fmt: skip
    tree(tmp_path, {"proc/self/cgroup": VERSION_1} | {f"sys/fs/cgroup/{name}": text for name, text in v1.items()})
    cgroup = found(tmp_path)
    assert (cgroup.cpu_limit(), cgroup.cpu_s(), cgroup.memory_limit_bytes()) == (None, None, None)


def test_computer_without_control_groups_has_no_limits(tmp_path: Path) -> None:
    assert Cgroup.find(tmp_path) is None


def test_container_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("container", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    assert not is_contained(tmp_path)
    monkeypatch.setenv("container", "podman")
    assert is_contained(tmp_path)
    monkeypatch.delenv("container")
    tree(tmp_path, {"run/.containerenv": "", "proc/2/comm": "python\n"})
    assert is_contained(tmp_path)
    tree(tmp_path, {"proc/2/comm": "kthreadd\n"})
    assert not is_contained(tmp_path), "a virtual machine made from a container's image"


def test_container_measures_only_itself(tmp_path: Path) -> None:
    version_2(
        tmp_path, "/", cpu_max="50000 100000", cpu_stat="usage_usec 1000000", memory_max="5000", memory_current="1"
    )
    cgroup = found(tmp_path)
    inside, service = Computer(cgroup, contained=True), Computer(cgroup, contained=False)
    assert (inside.cores, inside.measured_cores, inside.busy_cpu_s(), inside.cpus) == (0.5, 0.5, 1.0, 1)
    assert service.cores == 0.5
    assert service.measured_cores >= 1
    assert service.busy_cpu_s() > 1.0
    assert (service.memory_bytes(), service.memory_available_bytes()) == (5000, 4999)


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)
def test_cores_taken_away_while_a_worker_runs_are_noticed() -> None:
    computer, before = Computer.here(), os.sched_getaffinity(0)
    had = computer.cores
    os.sched_setaffinity(0, {min(before)})
    try:
        computer.refresh()
        assert (computer.cores, computer.taken_cores) == (1.0, had - 1)
    finally:
        os.sched_setaffinity(0, before)
    computer.refresh()
    assert (computer.cores, computer.taken_cores) == (had, 0.0)


def test_facts_of_this_computer() -> None:
    known = facts(Computer.here(), None, ("matlab",))
    assert known.slots == known.cpus >= 1
    assert known.memory_bytes > 0
    assert known.model
    assert known.labels == ("matlab",)
    assert facts(Computer.here(), 7, ()).slots == 7


class Bench(Computer):
    """Four cores with a settable load."""

    cores = measured_cores = 4.0
    used_s = 100.0

    def __init__(self) -> None: ...

    def refresh(self) -> None: ...

    def busy_cpu_s(self) -> float:
        return self.used_s

    def memory_available_bytes(self) -> int:
        return 7


def test_spare_cpu_excludes_use_by_others_and_changes_smoothly(monkeypatch: pytest.MonkeyPatch) -> None:
    now, computer = 1000.0, Bench()
    monkeypatch.setattr("time.monotonic", lambda: now)
    meter = Meter(computer)
    assert meter.spare_cpu == 4.0
    meter.sample(own_cpu_s=50)
    now, computer.used_s = now + 2, computer.used_s + 6  # three cores busy, two of them with our tasks
    meter.sample(own_cpu_s=54)
    assert meter.spare_cpu == 3.0
    now, computer.used_s = now + 2, computer.used_s + 8  # the owner takes all
    meter.sample(own_cpu_s=54)
    assert 0 < meter.spare_cpu < 3.0
    now, computer.used_s = now + 1000, computer.used_s + 4000
    meter.sample(own_cpu_s=54)
    assert meter.spare_cpu == pytest.approx(0, abs=0.01)
    assert meter.memory_available_bytes() == 7
