"""Windows' structures and flags, checked on any system. The calls themselves are not."""

import ctypes
import sys

import pytest

from loopline_worker.launch import job_object, windows_launcher

SIZES = {
    job_object.BasicLimits: 64,
    job_object.IoCounters: 48,
    job_object.ExtendedLimits: 144,
    job_object.CpuRate: 8,
    job_object.Accounting: 48,
}
"""Sizes on 64-bit Windows, which refuses structures of other sizes."""


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="64-bit sizes")
@pytest.mark.parametrize(("structure", "size"), SIZES.items(), ids=lambda value: getattr(value, "__name__", value))
def test_structures_have_the_sizes_of_windows(structure: type[ctypes.Structure], size: int) -> None:
    assert ctypes.sizeof(structure) == size


def test_fields_have_the_offsets_of_windows() -> None:
    offsets = {
        job_object.BasicLimits.limit_flags: 16,
        job_object.BasicLimits.active_process_limit: 40,
        job_object.BasicLimits.priority_class: 56,
        job_object.ExtendedLimits.job_memory_limit: 120,
        job_object.ExtendedLimits.peak_job_memory_used: 136,
        job_object.Accounting.active_processes: 40,
    }
    assert [field.offset for field in offsets] == list(offsets.values())


def test_a_job_always_dies_with_its_handle() -> None:
    wanted = job_object.limits(yields=False, memory_bytes=None, processes=None)
    assert wanted.basic.limit_flags == 0x2400


def test_every_limit_has_its_flag() -> None:
    wanted = job_object.limits(yields=True, memory_bytes=2**33, processes=50)
    assert wanted.basic.limit_flags == 0x2400 | 0x200 | 0x8 | 0x20
    assert (wanted.job_memory_limit, wanted.basic.active_process_limit, wanted.basic.priority_class) == (
        2**33,
        50,
        64,
    )


@pytest.mark.parametrize(("cores", "of_cores", "rate"), [(1, 4, 2500), (4, 4, 10_000), (9, 4, 10_000), (0, 64, 1)])
def test_the_processor_rate_is_in_hundredths_of_a_per_cent(cores: float, of_cores: int, rate: int) -> None:
    wanted = job_object.cpu_rate(cores, of_cores)
    assert (wanted.control_flags, wanted.cpu_rate) == (5, rate)


def test_processor_time_comes_in_tenths_of_a_microsecond() -> None:
    assert job_object.cpu_s(job_object.Accounting(total_user_time=20_000_000, total_kernel_time=5_000_000)) == 2.5


def test_a_task_sleeps_until_it_is_in_its_job() -> None:
    assert windows_launcher.FLAGS & 0x4


@pytest.mark.skipif(sys.platform == "win32", reason="it would work there")
def test_job_objects_do_not_exist_on_other_systems() -> None:
    with pytest.raises(OSError, match="on Windows only"):
        job_object.JobObject()
