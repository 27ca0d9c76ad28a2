"""Program that reads NVIDIA's GPUs once by NVML, and prints a line of JSON.

    python nvml_program.py LIBRARY SINCE_US PLACE...

A place is a PCI address, followed by /GPU_INSTANCE/COMPUTE_INSTANCE for an instance of a divided GPU (MIG).

It is a process of its own, because a call of the driver may never return, and because an open handle keeps a GPU
awake. It needs few functions, whose signatures have never changed, and so no package of bindings. The energy counter
exists for GPUs from Volta on.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections import defaultdict
from typing import Any

NOT_FOUND, INSUFFICIENT_SIZE, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 6, 7, 12, 13
_MOST_SAMPLES = 100_000


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Use(ctypes.Structure):
    """Use of a GPU by one process over a short time, in per cent."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("at_us", ctypes.c_ulonglong),
        *((name, ctypes.c_uint) for name in ("cores", "memory", "encoder", "decoder")),
    ]


class NvmlError(Exception):
    """An error of NVML, by its number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"NVML error {number}")
        self.number = number


class Nvml:
    """The library, opened."""

    def __init__(self, library: str) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError:
            raise NvmlError(LIBRARY_NOT_FOUND) from None
        self.call("nvmlInit_v2")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises NvmlError."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NvmlError(FUNCTION_NOT_FOUND) from None
        if number := function(*arguments):
            raise NvmlError(number)

    def read(self, place: str, since_us: int) -> dict[str, Any]:
        """Return the memory of a GPU, its compute capability, its use by each process since then, and its energy.

        The use is in per cent, energy in millijoules; each is None if the driver does not measure it. Raises
        NvmlError.
        """
        gpu, memory, major, minor = ctypes.c_void_p(), _Memory(), ctypes.c_int(), ctypes.c_int()
        address, *instance = place.split("/")
        self.call("nvmlDeviceGetHandleByPciBusId_v2", address.encode(), ctypes.byref(gpu))
        self.call("nvmlDeviceGetMemoryInfo", self._instance(gpu, instance), ctypes.byref(memory))
        self.call("nvmlDeviceGetCudaComputeCapability", gpu, ctypes.byref(major), ctypes.byref(minor))
        uses: dict[int, float] | None = None
        try:
            if not instance:  # NVML measures no use of an instance
                uses = self._uses(gpu, since_us)
        except NvmlError as error:
            uses = {} if error.number == NOT_FOUND else None
        memories = {"memory_bytes": memory.total, "free_bytes": memory.free}
        return memories | {
            "capability": f"{major.value}.{minor.value}",
            "uses": uses,
            "millijoules": None if instance else self._millijoules(gpu),  # the counter is of the whole GPU
        }

    def _millijoules(self, gpu: ctypes.c_void_p) -> int | None:
        """Return the energy since the driver was loaded."""
        count = ctypes.c_ulonglong()
        try:
            self.call("nvmlDeviceGetTotalEnergyConsumption", gpu, ctypes.byref(count))
        except NvmlError:
            return None
        return count.value

    def _instance(self, gpu: ctypes.c_void_p, numbers: list[str]) -> ctypes.c_void_p:
        """Return the instance of a GPU that has these numbers; the GPU itself without any. Raises NvmlError."""
        count = ctypes.c_uint(0)
        if numbers:
            self.call("nvmlDeviceGetMaxMigDeviceCount", gpu, ctypes.byref(count))
        for index in range(count.value):
            found, own, compute = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
            try:
                self.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, ctypes.c_uint(index), ctypes.byref(found))
            except NvmlError as error:
                if error.number != NOT_FOUND:
                    raise
                continue
            self.call("nvmlDeviceGetGpuInstanceId", found, ctypes.byref(own))
            self.call("nvmlDeviceGetComputeInstanceId", found, ctypes.byref(compute))
            if [str(own.value), str(compute.value)] == numbers:
                return found
        if numbers:
            raise NvmlError(NOT_FOUND)
        return gpu

    def _uses(self, gpu: ctypes.c_void_p, since_us: int) -> dict[int, float]:
        count, since = ctypes.c_uint(0), ctypes.c_ulonglong(since_us)
        name = "nvmlDeviceGetProcessUtilization"
        try:
            self.call(name, gpu, None, ctypes.byref(count), since)
        except NvmlError as error:
            if error.number != INSUFFICIENT_SIZE:
                raise
        samples = (_Use * min(count.value, _MOST_SAMPLES))()
        self.call(name, gpu, samples, ctypes.byref(count), since)
        of_process = defaultdict[int, list[int]](list)
        for sample in samples[: count.value]:
            if sample.at_us > since_us:
                of_process[sample.pid].append(max(sample.cores, sample.encoder, sample.decoder))
        return {pid: sum(parts) / len(parts) for pid, parts in of_process.items()}


def main(library: str, since_us: str, *places: str) -> None:
    """Read these GPUs. An error has its number; that of the whole library stands for all GPUs."""
    try:
        nvml = Nvml(library)
    except NvmlError as error:
        print(json.dumps({place: {"error": error.number} for place in places}))
        return
    found: dict[str, Any] = {}
    for place in places:
        try:
            found[place] = nvml.read(place, int(since_us))
        except NvmlError as error:
            found[place] = {"error": error.number}
    print(json.dumps(found), flush=True)
    nvml.call("nvmlShutdown")


if __name__ == "__main__":
    main(*sys.argv[1:])
