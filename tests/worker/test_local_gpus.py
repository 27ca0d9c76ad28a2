"""Detection of GPUs from the files of their drivers: real trees of files, in a folder of the test's own."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from loopline_shared.protocol.gpus import Gpu
from loopline_worker.doctor import gpus_of
from loopline_worker.gpus.local_gpus import (
    GpuMaker,
    find_gpus,
    is_awake,
    is_there,
    ready_gpus,
    unknown_names,
    why_not_offered,
)
from loopline_worker.settings import GpuChoice, WorkerSettings
from tests.worker.gpu_trees import UUIDS, add_amd, add_nvidia, divide, write

PCI_IDS = """\
# a comment
1001  Another maker
\t73bf  Not this one
1002  Advanced Micro Devices, Inc. [AMD/ATI]
\t73bf  Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]
\t\t1002 0e3a  Radeon RX 6900 XT
1003  A third maker
"""


def test_computer_without_a_driver_has_no_gpu(tmp_path: Path) -> None:
    assert find_gpus(tmp_path) == []


def test_gpus_of_nvidia_are_found_in_pci_order(tmp_path: Path) -> None:
    add_nvidia(tmp_path, "0000:41:00.0", minor=0, uuid=UUIDS[1], model="NVIDIA A100-SXM4-40GB", device="20b0")
    add_nvidia(tmp_path, "0000:01:00.0", minor=1)
    first, second = find_gpus(tmp_path)
    assert first.gpu == Gpu(UUIDS[0], "NVIDIA RTX A4000", 0, "535.54.03", "8.6", 0)
    assert second.gpu == Gpu(UUIDS[1], "NVIDIA A100-SXM4-40GB", 0, "535.54.03", "8.0", 1)
    assert first.own_file == "/dev/nvidia1"
    assert first.files == ("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    assert first.maker is GpuMaker.NVIDIA


@pytest.mark.parametrize(
    ("device", "capability"),
    [
        ("1db6", "7.0"),
        ("1d01", "6.1"),
        ("1eb8", "7.5"),
        ("2204", "8.6"),
        ("2684", "8.9"),
        ("2330", "9.0"),
        ("ffff", ""),
    ],
)
def test_capability_follows_from_the_chip(tmp_path: Path, device: str, capability: str) -> None:
    add_nvidia(tmp_path, device=device)
    assert find_gpus(tmp_path)[0].gpu.capability == capability


def test_version_of_the_open_driver_is_read(tmp_path: Path) -> None:
    add_nvidia(tmp_path)
    version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  545.23.08  Release Build  (root@h)\n"
    write(tmp_path / "proc/driver/nvidia/version", version)
    assert find_gpus(tmp_path)[0].gpu.driver == "545.23.08"


def test_gpu_whose_uuid_is_unknown_is_named_by_its_place(tmp_path: Path) -> None:
    add_nvidia(tmp_path, uuid="GPU-????????-????-????-????-????????????")
    write(tmp_path / "etc/machine-id", "0123456789abcdef\n")
    (found,) = find_gpus(tmp_path)
    assert found.gpu.id.endswith("-0000:01:00.0")
    assert found.visible_as == "0"
    write(tmp_path / "etc/machine-id", "another\n")
    assert find_gpus(tmp_path)[0].gpu.id != found.gpu.id, "two computers have GPUs at the same place"


def test_gpu_excluded_by_the_driver_is_left_out_and_the_other_keeps_its_index(tmp_path: Path) -> None:
    add_nvidia(tmp_path, "0000:01:00.0", minor=0, excluded="Yes")
    add_nvidia(tmp_path, "0000:02:00.0", minor=1, uuid=UUIDS[1])
    assert [found.gpu.id for found in find_gpus(tmp_path)] == [UUIDS[1]]


def test_gpus_of_amd_are_found_with_their_memory(tmp_path: Path) -> None:
    add_amd(tmp_path, 1)
    add_amd(tmp_path, 2, minor=129, unique_id=0, product="AMD Instinct MI210")
    write(tmp_path / "usr/share/misc/pci.ids", PCI_IDS)
    write(tmp_path / "sys/module/amdgpu/version", "6.7.0\n")
    first, second = find_gpus(tmp_path)
    name = "AMD Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]"
    assert first.gpu == Gpu("GPU-73c8a5d4fd3a1c05", name, 17163091968, "6.7.0", "", 0)
    assert first.address == "0000:03:00.0"
    assert first.files[:3] == ("/dev/dri/renderD128", "/dev/kfd", "/sys/class/kfd")
    assert first.files[-1] == str(tmp_path / "sys/class/drm/renderD128/device")
    assert second.gpu.model == "AMD Instinct MI210"
    assert second.visible_as == "1"
    assert second.gpu.id.endswith("-0000:03:00.1")


def test_gpu_that_is_part_of_a_processor_is_offered_only_if_it_is_named(tmp_path: Path) -> None:
    add_amd(tmp_path, 1, cores=8)
    (found,) = find_gpus(tmp_path)
    assert "part of the processor" in why_not_offered(found, GpuChoice.AUTO, frozenset())
    assert not why_not_offered(found, GpuChoice.AUTO, frozenset({"0"}))


def test_settings_say_which_gpus_are_offered(tmp_path: Path) -> None:
    add_nvidia(tmp_path, "0000:01:00.0", minor=0)
    add_nvidia(tmp_path, "0000:02:00.0", minor=1, uuid=UUIDS[1])
    first, second = find_gpus(tmp_path)
    assert why_not_offered(first, GpuChoice.OFF, frozenset()) == "gpu = off"
    for name in ("1", UUIDS[1], "0000:02:00.0"):
        assert why_not_offered(first, GpuChoice.AUTO, frozenset({name})) == "it is not among gpu_devices"
        assert not why_not_offered(second, GpuChoice.AUTO, frozenset({name}))
        assert unknown_names([first, second], frozenset({name, "none"})) == []
    assert unknown_names([first, second], frozenset({"2", "0", "GPU-x"})) == ["2", "GPU-x"]


def test_gpu_that_is_not_in_this_container_is_not_offered(tmp_path: Path) -> None:
    add_nvidia(tmp_path)
    (tmp_path / "dev/nvidia0").unlink()
    (found,) = find_gpus(tmp_path)
    assert "/dev/nvidia0 is not there" in why_not_offered(found, GpuChoice.AUTO, frozenset())


def test_instances_of_a_divided_gpu_are_offered_in_its_place(tmp_path: Path) -> None:
    add_nvidia(tmp_path, "0000:01:00.0", model="NVIDIA A100-SXM4-80GB", device="20b2")
    add_nvidia(tmp_path, "0000:02:00.0", minor=1, uuid=UUIDS[1])
    divide(tmp_path, 0, (1, 0), (2, 0))
    write(tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gix/ciy/access", "odd")
    whole, first, second, other = find_gpus(tmp_path)
    offered = [why_not_offered(each, GpuChoice.AUTO, frozenset()) == "" for each in (whole, first, second, other)]
    assert offered == [False, True, True, True]
    assert "MIG" in whole.obstacle
    assert (first.gpu.id, first.gpu.model) == (f"MIG-{UUIDS[0]}-1-0", "NVIDIA A100-SXM4-80GB MIG")
    assert (first.gpu.capability, first.gpu.memory_bytes) == ("8.0", 0)
    assert first.visible_as == f"MIG-{UUIDS[0]}/1/0"
    assert (first.place, second.place, other.place) == ("0000:01:00.0/1/0", "0000:01:00.0/2/0", "0000:02:00.0")
    assert first.files[0] == "/dev/nvidia0"
    assert {*first.files} & {*second.files} == {*whole.files}
    assert {*first.files} - {*whole.files} == {"/dev/nvidia-caps/nvidia-cap9", "/dev/nvidia-caps/nvidia-cap10"}
    TypeAdapter(Gpu).validate_python(asdict(first.gpu))
    shutil.rmtree(tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi1")
    assert not is_there(first)
    assert is_there(second)
    (tmp_path / "dev/nvidia-caps/nvidia-cap18").unlink()
    assert "nvidia-cap18 is not there" in find_gpus(tmp_path)[1].obstacle


def test_instances_of_a_gpu_whose_uuid_is_unknown_are_not_offered(tmp_path: Path) -> None:
    add_nvidia(tmp_path, uuid="GPU-????????-????-????-????-????????????")
    divide(tmp_path, 0, (1, 0))
    (whole,) = find_gpus(tmp_path)
    assert whole.obstacle == "it is divided (MIG), and its instances are unknown until it is first used"


def test_divided_gpu_without_compute_instances_is_not_offered(tmp_path: Path) -> None:
    add_nvidia(tmp_path)
    write(tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "DeviceFileMinor: 9\n")
    (whole,) = find_gpus(tmp_path)
    assert "has no compute instance" in whole.obstacle


def test_gpu_that_left_the_bus_is_noticed(tmp_path: Path) -> None:
    folder = add_nvidia(tmp_path)
    (found,) = find_gpus(tmp_path)
    assert is_there(found)
    shutil.rmtree(folder)
    assert not is_there(found)


@pytest.mark.parametrize(("status", "awake"), [("active", True), ("suspended", False), ("unsupported", True)])
def test_sleep_of_a_gpu_is_read_without_waking_it(tmp_path: Path, status: str, awake: bool) -> None:
    add_nvidia(tmp_path, status=status)
    assert is_awake(find_gpus(tmp_path)[0], tmp_path) is awake


def test_missing_device_files_are_made_by_the_makers_program(tmp_path: Path) -> None:
    add_nvidia(tmp_path, "0000:01:00.0", minor=0)
    add_nvidia(tmp_path, "0000:02:00.0", minor=1, uuid=UUIDS[1])
    (tmp_path / "dev/nvidia1").unlink()
    program = tmp_path / "nvidia-modprobe"
    program.write_text(f'#!/bin/sh\ncd {tmp_path}; echo "$@" > words; touch dev/nvidia-uvm dev/nvidia1\n')
    program.chmod(0o755)
    assert [found.obstacle for found in ready_gpus(tmp_path, str(program))] == ["", ""]
    assert (tmp_path / "words").read_text() == "-u -c=0 -c=1\n"
    program.unlink()
    assert len(ready_gpus(tmp_path, str(program))) == 2, "nothing is missing, and nothing is run"
    (tmp_path / "dev/nvidia1").unlink()
    assert "not there" in ready_gpus(tmp_path, str(program))[1].obstacle


def test_odd_files_are_no_gpus(tmp_path: Path) -> None:
    add_nvidia(tmp_path, "0000:01:00.0", model="\0\x1b[31m" + "x" * 1000, uuid="GPU-../../etc")
    write(tmp_path / "proc/driver/nvidia/gpus/0000:02:00.0/information", "\0 nonsense")
    (tmp_path / "proc/driver/nvidia/gpus/0000:03:00.0/information").mkdir(parents=True)
    write(tmp_path / "sys/class/kfd/kfd/topology/nodes/1/properties", "simd_count many\n\n:\n")
    (found,) = find_gpus(tmp_path)
    assert found.gpu.model == ("[31m" + "x" * 196)
    assert found.gpu.id.endswith("-0000:01:00.0"), "the driver's name for it is not one"
    TypeAdapter(Gpu).validate_python(asdict(found.gpu))


def test_doctor_lists_gpus_and_whether_tasks_are_kept_apart(tmp_path: Path) -> None:
    add_nvidia(tmp_path, "0000:01:00.0")
    add_amd(tmp_path, 1, cores=8)
    settings = WorkerSettings(data_dir=tmp_path)
    nvidia, amd, enforced = gpus_of(settings, find_gpus(tmp_path), "bubblewrap")
    assert nvidia.has
    assert "memory not known yet, CUDA 8.6, driver 535.54.03" in nvidia.detail
    assert not amd.has
    assert "16 GiB" in amd.detail
    assert enforced.has
    for kind, chosen in (("none", settings), ("bubblewrap", WorkerSettings(data_dir=tmp_path, sandbox="off"))):
        assert "not enforced" in gpus_of(chosen, find_gpus(tmp_path), kind)[-1].detail
    assert len(gpus_of(WorkerSettings(data_dir=tmp_path, gpu="off"), find_gpus(tmp_path), "none")) == 2
