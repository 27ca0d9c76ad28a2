"""Windows' Job Objects by ctypes: limits on a tree of processes, killed with the last handle to it. UNTESTED.

The structures are those of winnt.h; tests check their sizes and the flags on any system, never the calls.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

KILL_ON_JOB_CLOSE = 0x2000
DIE_ON_UNHANDLED_EXCEPTION = 0x400  # no window that waits for a click
JOB_MEMORY = 0x200
ACTIVE_PROCESS = 0x8
PRIORITY_CLASS = 0x20
IDLE_PRIORITY_CLASS = 0x40

CPU_RATE_ENABLE = 0x1
CPU_RATE_HARD_CAP = 0x4
CPU_RATE_WHOLE = 10_000  # hundredths of a per cent of all processors

BASIC_ACCOUNTING, EXTENDED_LIMIT, CPU_RATE = 1, 9, 15  # of JOBOBJECTINFOCLASS


class BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION"""

    _fields_ = [
        ("per_process_user_time_limit", c_int64),
        ("per_job_user_time_limit", c_int64),
        ("limit_flags", c_uint32),
        ("minimum_working_set_size", c_size_t),
        ("maximum_working_set_size", c_size_t),
        ("active_process_limit", c_uint32),
        ("affinity", c_size_t),
        ("priority_class", c_uint32),
        ("scheduling_class", c_uint32),
    ]


class IoCounters(ctypes.Structure):
    """IO_COUNTERS"""

    _fields_ = [
        (name, c_uint64)
        for name in ("reads", "writes", "others", "read_bytes", "written_bytes", "other_bytes")
    ]  # fmt: skip


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION"""

    _fields_ = [
        ("basic", BasicLimits),
        ("io", IoCounters),
        ("process_memory_limit", c_size_t),
        ("job_memory_limit", c_size_t),
        ("peak_process_memory_used", c_size_t),
        ("peak_job_memory_used", c_size_t),
    ]


class CpuRate(ctypes.Structure):
    """JOBOBJECT_CPU_RATE_CONTROL_INFORMATION"""

    _fields_ = [("control_flags", c_uint32), ("cpu_rate", c_uint32)]


class Accounting(ctypes.Structure):
    """JOBOBJECT_BASIC_ACCOUNTING_INFORMATION"""

    _fields_ = [
        ("total_user_time", c_int64),  # in units of 100 ns
        ("total_kernel_time", c_int64),
        ("this_period_user_time", c_int64),
        ("this_period_kernel_time", c_int64),
        ("page_faults", c_uint32),
        ("total_processes", c_uint32),
        ("active_processes", c_uint32),
        ("terminated_processes", c_uint32),
    ]


def limits(yields: bool, memory_bytes: int | None, processes: int | None) -> ExtendedLimits:
    """Return the given limits, with kill-on-close added."""
    wanted = ExtendedLimits()
    wanted.basic.limit_flags = KILL_ON_JOB_CLOSE | DIE_ON_UNHANDLED_EXCEPTION
    if yields:
        wanted.basic.limit_flags |= PRIORITY_CLASS
        wanted.basic.priority_class = IDLE_PRIORITY_CLASS
    if memory_bytes is not None:
        wanted.basic.limit_flags |= JOB_MEMORY
        wanted.job_memory_limit = memory_bytes
    if processes is not None:
        wanted.basic.limit_flags |= ACTIVE_PROCESS
        wanted.basic.active_process_limit = processes
    return wanted


def cpu_rate(cores: float, of_cores: int) -> CpuRate:
    """Return a hard cap of ``cores`` cores."""
    share = max(1, min(CPU_RATE_WHOLE, round(CPU_RATE_WHOLE * cores / of_cores)))
    return CpuRate(CPU_RATE_ENABLE | CPU_RATE_HARD_CAP, share)


def cpu_s(accounting: Accounting) -> float:
    """Return the CPU time of all processes of the job, ended ones included."""
    return float(accounting.total_user_time + accounting.total_kernel_time) / 1e7


def system_s(accounting: Accounting) -> float:
    """Return the part of the CPU time that the kernel used."""
    return float(accounting.total_kernel_time) / 1e7


class JobObject:
    """The Job Object of one attempt. Its methods raise OSError if Windows refuses."""

    def __init__(self) -> None:
        self._api = _api()
        self._handle = c_void_p(self._api.CreateJobObjectW(None, None))
        self._check(self._handle.value)

    def set(self, information: ctypes.Structure, kind: int) -> None:
        """Set limits of this kind."""
        size = ctypes.sizeof(information)
        self._check(self._api.SetInformationJobObject(self._handle, kind, ctypes.byref(information), size))

    def assign(self, process_handle: int) -> None:
        """Put a process into the job."""
        self._check(self._api.AssignProcessToJobObject(self._handle, c_void_p(process_handle)))

    def accounting(self) -> Accounting:
        """Return what the job has used."""
        answer: Accounting = self._ask(Accounting(), BASIC_ACCOUNTING)
        return answer

    def peak_memory_bytes(self) -> int:
        """Return the peak memory of the whole job."""
        return int(self._ask(ExtendedLimits(), EXTENDED_LIMIT).peak_job_memory_used)

    def kill(self, exit_code: int = 1) -> None:
        """Kill all processes of the job."""
        self._api.TerminateJobObject(self._handle, exit_code)

    def close(self) -> None:
        """Close the handle, which kills what is still in the job."""
        if self._handle:
            self._api.CloseHandle(self._handle)
        self._handle = c_void_p(None)

    def _ask(self, answer: Any, kind: int) -> Any:
        size = ctypes.sizeof(answer)
        self._check(self._api.QueryInformationJobObject(self._handle, kind, ctypes.byref(answer), size, None))
        return answer

    def _check(self, succeeded: object) -> None:
        if sys.platform == "win32" and not succeeded:
            raise ctypes.WinError(ctypes.get_last_error())


def _api() -> Any:
    if sys.platform != "win32":
        raise OSError("Job Objects exist on Windows only")
    api = ctypes.WinDLL("kernel32", use_last_error=True)
    api.CreateJobObjectW.restype = c_void_p  # a handle is as wide as a pointer
    return api
