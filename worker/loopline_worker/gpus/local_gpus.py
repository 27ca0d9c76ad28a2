"""Detection of this computer's GPUs, from files of the kernel and of its drivers.

Reading these files wakes no GPU that is asleep, and needs no library of the driver. NVIDIA's do not say how much
memory a GPU has.
"""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from loopline_shared.protocol.gpus import MAX_GPUS, Gpu
from loopline_worker.departure import NO_GPU
from loopline_worker.settings import GpuChoice

ROOT = Path("/")
_PCI_IDS = ("usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids")
_SEEN_OF_AMD = ("/sys/class/kfd", "/sys/devices/virtual/kfd", "/sys/class/drm", "/sys/dev/char")
"""Where AMD's libraries look for GPUs."""
_MAKE_WITHIN_S = 10.0
_AMD = "1002"
"""AMD's number as a maker of PCI devices."""
_UUID = re.compile(r"GPU-[0-9A-Fa-f-]{8,40}")
_VERSION = re.compile(r"\b\d{3,4}\.\d+(?:\.\d+)?\b")
_CHIPS = {
    "5.0": ("13", "17"), "6.0": ("15",), "6.1": ("1b", "1c", "1d"), "7.0": ("1d8", "1db"), "7.5": ("1e", "1f", "21"),
    "8.0": ("20",), "8.6": ("22", "24", "25"), "8.9": ("26", "27", "28"), "9.0": ("23",), "10.0": ("29",),
    "12.0": ("2b", "2c", "2d"),
}  # fmt: skip
"""CUDA compute capabilities, with the first digits of NVIDIA's PCI device ids for chips that have them."""
_CAPABILITIES = {chip: capability for capability, chips in _CHIPS.items() for chip in chips}


class GpuMaker(StrEnum):
    """GpuMaker of a GPU."""

    NVIDIA = "nvidia"
    AMD = "amd"


@dataclass(frozen=True, slots=True)
class LocalGpu:
    """A GPU of this computer."""

    gpu: Gpu
    maker: GpuMaker
    address: str  # on the PCI bus: 0000:01:00.0
    visible_as: str  # as CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES name it
    files: tuple[str, ...]  # that its tasks open: device files to read and write, files below /sys to read
    own_file: str  # of those, the file of this GPU alone
    state_files: tuple[str, ...]  # files that are there as long as the GPU is
    obstacle: str = ""  # why it cannot be offered; empty: it can
    integrated: bool = False  # it is a part of the processor, and shares its memory
    instance: tuple[int, int] | None = None  # of a divided GPU (MIG): the numbers of a GPU and a compute instance

    @property
    def place(self) -> str:
        """The address, and the numbers of the instance, as NVML and the locks name it."""
        return "/".join([self.address, *map(str, self.instance or ())])


def find_gpus(root: Path = ROOT) -> list[LocalGpu]:
    """Return the GPUs of this computer, NVIDIA's first, each maker's in PCI order."""
    return [*_nvidia(root), *_amd(root)][:MAX_GPUS]


def ready_gpus(root: Path = ROOT, program: str = "nvidia-modprobe") -> list[LocalGpu]:
    """Return the GPUs of this computer, and make missing device files of NVIDIA's, if its ``program`` is installed.

    The first program that uses a GPU makes them otherwise, and tasks in a sandbox are not able to.
    """
    found = find_gpus(root)
    minors = list(
        dict.fromkeys(each.files[0].removeprefix("/dev/nvidia") for each in found if each.maker is GpuMaker.NVIDIA)
    )
    needed = [f"nvidia{minor}" for minor in minors] + ["nvidia-uvm"] * bool(minors)
    if all((root / "dev" / name).exists() for name in needed):
        return found
    with suppress(OSError, subprocess.TimeoutExpired):
        command = [program, "-u", *(f"-c={minor}" for minor in minors)]
        subprocess.run(command, capture_output=True, timeout=_MAKE_WITHIN_S, check=False)
    return find_gpus(root)


def _nvidia(root: Path) -> Iterator[LocalGpu]:
    driver = _VERSION.search(_read(root / "proc/driver/nvidia/version"))
    folders = sorted((root / "proc/driver/nvidia/gpus").glob("*:*:*.*"))
    for index, folder in enumerate(folders):
        said = _pairs(_read(folder / "information"), ":")
        minor, uuid, address = said.get("Device Minor", ""), said.get("GPU UUID", ""), folder.name.lower()
        if not minor.isdigit() or said.get("GPU Excluded") == "Yes":
            continue
        is_known = bool(_UUID.fullmatch(uuid))  # it has question marks until the GPU is first used
        device = _read(root / "sys/bus/pci/devices" / address / "device").strip().removeprefix("0x")
        own = f"/dev/nvidia{minor}"
        mig = root / f"proc/driver/nvidia/capabilities/gpu{minor}/mig"
        whole = LocalGpu(
            Gpu(
                uuid if is_known else _name(root, address),
                _text(said.get("Model", "NVIDIA GPU")),
                driver=driver[0] if driver else "",
                capability=_CAPABILITIES.get(device[:3]) or _CAPABILITIES.get(device[:2], ""),
                index=index,
            ),
            GpuMaker.NVIDIA,
            address,
            visible_as=uuid if is_known else str(index),
            files=(own, "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"),
            own_file=own,
            state_files=(str(folder), str(root / own[1:])),
            obstacle=_division(mig, is_known) or _missing(root, own),
        )
        yield whole
        for place in sorted(mig.glob("gi*/ci*")) if is_known else ():
            if numbers := _numbers(place):
                yield _instance(root, whole, place, numbers)


def _division(mig: Path, is_known: bool) -> str:
    """Return the obstacle that a GPU is divided; empty if it is not. ``is_known``: its UUID is."""
    if not any(mig.glob("gi*")):
        return ""
    if not is_known:
        return "it is divided (MIG), and its instances are unknown until it is first used"
    if any(mig.glob("gi*/ci*")):
        return "it is divided (MIG), and its instances take its place"
    return "it is divided (MIG), but has no compute instance: nvidia-smi mig -cci makes them; then restart the worker"


def _instance(root: Path, whole: LocalGpu, folder: Path, numbers: tuple[int, int]) -> LocalGpu:
    """Return a compute instance of a divided GPU, by its folder below /proc. CUDA finds it by its numbers."""
    minors = [_pairs(_read(one / "access"), ":").get("DeviceFileMinor", "") for one in (folder.parent, folder)]
    keys = tuple(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors)
    uuid = whole.gpu.id
    return replace(
        whole,
        gpu=replace(whole.gpu, id="-".join(["MIG", uuid, *map(str, numbers)]), model=f"{whole.gpu.model[:196]} MIG"),
        visible_as="/".join([f"MIG-{uuid}", *map(str, numbers)]),
        files=(*whole.files, *keys),
        own_file=keys[-1],
        state_files=(*whole.state_files, str(folder / "access")),
        obstacle=next(filter(None, (_missing(root, file) for file in (whole.files[0], *keys))), ""),
        instance=numbers,
    )


def _numbers(folder: Path) -> tuple[int, int] | None:
    """Return the numbers of a GPU instance and a compute instance; None if the folder belongs to no instance."""
    found = folder.parent.name[2:], folder.name[2:]
    return (int(found[0]), int(found[1])) if all(map(str.isdecimal, found)) else None


def device_of(each: LocalGpu, root: Path) -> Path:
    """Return the folder in /sys of an AMD GPU."""
    return root / f"sys/class/drm/{each.own_file.rpartition('/')[2]}/device"


def _amd(root: Path) -> Iterator[LocalGpu]:
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("[0-9]*")
    index = 0
    for node in sorted(nodes, key=lambda folder: int(folder.name)):
        said = {
            name: int(value) for name, value in _pairs(_read(node / "properties"), " ").items() if value.isdigit()
        }
        if not said.get("simd_count"):
            continue  # a processor
        minor, place = said.get("drm_render_minor", 0), said.get("location_id", 0)
        address = f"{said.get('domain', 0):04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}"
        device = root / f"sys/class/drm/renderD{minor}/device"
        uuid = f"GPU-{said['unique_id']:016x}" if said.get("unique_id") else ""
        own = f"/dev/dri/renderD{minor}"
        model = _read(device / "product_name").strip() or _pci_name(root, _AMD, f"{said.get('device_id', 0):04x}")
        memory = _read(device / "mem_info_vram_total").strip()
        yield LocalGpu(
            Gpu(
                uuid or _name(root, address),
                _text(f"AMD {(model or _read(node / 'name').strip() or 'GPU').removeprefix('AMD ')}"),
                int(memory) if memory.isdigit() else 0,
                driver=_text(_read(root / "sys/module/amdgpu/version").strip()) or "of the kernel",
                index=index,
            ),
            GpuMaker.AMD,
            address,
            visible_as=uuid or str(index),
            files=(own, "/dev/kfd", *_SEEN_OF_AMD, str(device.resolve())),
            own_file=own,
            state_files=(str(device), str(root / own[1:])),
            obstacle=_missing(root, own),
            integrated=bool(said.get("cpu_cores_count")),
        )
        index += 1


def why_not_offered(found: LocalGpu, choice: GpuChoice, named: Set[str]) -> str:
    """Return why a worker does not offer a GPU; empty if it does. ``named``: its ``gpu_devices``, empty for all."""
    if choice is GpuChoice.OFF:
        return "gpu = off"
    is_named = not named.isdisjoint(_names(found))
    if named and not is_named:
        return "it is not among gpu_devices"
    if found.integrated and not is_named:
        return "it is a part of the processor: name it in gpu_devices to offer it"
    return found.obstacle


def unknown_names(found: Iterable[LocalGpu], named: Set[str]) -> list[str]:
    """Return the names in ``gpu_devices`` that no GPU of this computer has."""
    return sorted(named - {name for each in found for name in _names(each)} - {NO_GPU})


def _names(found: LocalGpu) -> tuple[str, str, str]:
    return str(found.gpu.index), found.gpu.id, found.address


def is_awake(found: LocalGpu, root: Path = ROOT) -> bool:
    """True unless the GPU is suspended to save power."""
    status = _read(root / "sys/bus/pci/devices" / found.address / "power/runtime_status").strip()
    return status not in ("suspended", "suspending")


def is_there(found: LocalGpu) -> bool:
    """False if the GPU has left the bus, or its driver was unloaded."""
    return all(Path(file).exists() for file in found.state_files)


def _missing(root: Path, file: str) -> str:
    """Return the obstacle that a device file is missing, as in most containers."""
    return "" if (root / file[1:]).exists() else f"{file} is not there: this may be a container without it"


def _name(root: Path, address: str) -> str:
    """Return a name for a GPU that has no UUID: the computer and its address."""
    computer = _read(root / "etc/machine-id").strip() or platform.node()
    return f"{hashlib.sha256(computer.encode()).hexdigest()[:12]}-{address}"


def _pci_name(root: Path, maker: str, device: str) -> str:
    """Return the name that the system's list of PCI devices has for this one; empty if there is none."""
    for place in _PCI_IDS:
        _, found, of_maker = _read(root / place).partition(f"\n{maker}  ")
        own = re.search(rf"^\t{device}  (.*)$", re.split(r"\n(?=[^\t#\n])", of_maker, maxsplit=1)[0], re.MULTILINE)
        if found and own:
            return own[1]
    return ""


def _text(name: str) -> str:
    """Return a name without odd characters, as the master accepts it."""
    return "".join(filter(str.isprintable, name))[:200]


def _pairs(text: str, divider: str) -> dict[str, str]:
    lines = (line.partition(divider) for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8", errors="replace")
    except OSError:
        return ""
