"""Energy of AMD's GPUs, from the power in folders like those of their driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline_worker.gpus.amd_power import AmdEnergy, watts
from loopline_worker.gpus.gpu_locks import GpuLocks
from loopline_worker.gpus.gpu_watch import GpuWatch
from loopline_worker.gpus.gpu_wing import Gpus
from loopline_worker.gpus.known_gpus import KnownGpus
from loopline_worker.gpus.local_gpus import find_gpus
from tests.worker.gpu_trees import add_amd, write

DEVICE = "sys/class/drm/renderD128/device"


@pytest.mark.parametrize("file", ["power1_average", "power1_input"])
def test_power_is_read_from_the_file_that_the_driver_has(tmp_path: Path, file: str) -> None:
    assert watts(tmp_path) is None
    write(tmp_path / "hwmon/hwmon3" / file, "35000000\n")
    assert watts(tmp_path) == 35.0


def test_interval_counts_with_the_mean_of_its_powers(tmp_path: Path) -> None:
    energy, power = AmdEnergy(), tmp_path / "hwmon/hwmon3/power1_average"

    def at(now: float, power_w: float) -> float | None:
        write(power, f"{power_w * 1e6:.0f}\n")
        return energy.joules(now, tmp_path)

    assert [at(1000.0, 30.0), at(1010.0, 50.0), at(1020.0, 50.0)] == [0.0, 400.0, 900.0]
    assert at(1060.0, 200.0) == 900.0, "the GPU was not read in between"
    power.unlink()
    assert energy.joules(1070.0, tmp_path) is None
    assert at(1080.0, 50.0) == 900.0


async def test_power_is_read_while_a_task_has_the_gpu(tmp_path: Path) -> None:
    add_amd(tmp_path)
    gpus = find_gpus(tmp_path)
    wing = Gpus(gpus, GpuLocks(tmp_path), KnownGpus(tmp_path / "gpus.json"), root=tmp_path)
    assert not wing.counts_energy
    write(tmp_path / DEVICE / "hwmon/hwmon3/power1_average", "35000000\n")
    assert wing.counts_energy
    watch = GpuWatch(lambda: gpus, lambda: {gpus[0].gpu.id: [1]}, is_dedicated=True, root=tmp_path)
    await watch.look()
    assert watch.readings[gpus[0].gpu.id].joules == 0.0
    assert watch.withheld(gpus[0]) == ""


async def test_power_of_a_gpu_in_the_processor_is_not_its_own(tmp_path: Path) -> None:
    add_amd(tmp_path, cores=8)
    write(tmp_path / DEVICE / "hwmon/hwmon3/power1_average", "35000000\n")
    gpus = find_gpus(tmp_path)
    assert not Gpus(gpus, GpuLocks(tmp_path), KnownGpus(tmp_path / "gpus.json"), root=tmp_path).counts_energy
    watch = GpuWatch(lambda: gpus, lambda: {gpus[0].gpu.id: [1]}, is_dedicated=True, root=tmp_path)
    await watch.look()
    assert gpus[0].gpu.id not in watch.readings


def test_power_of_a_suspended_gpu_is_not_read_at_the_start(tmp_path: Path) -> None:
    add_amd(tmp_path)
    write(tmp_path / DEVICE / "hwmon/hwmon3/power1_average", "its driver refuses, or wakes the GPU\n")
    assert Gpus(
        find_gpus(tmp_path), GpuLocks(tmp_path), KnownGpus(tmp_path / "gpus.json"), root=tmp_path
    ).counts_energy
