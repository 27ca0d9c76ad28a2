"""Trees of files as the drivers of GPUs show them, in a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

UUIDS = ("GPU-5f3a6b0e-1c2d-4e5f-8a9b-0c1d2e3f4a5b", "GPU-11111111-2222-3333-4444-555555555555")
_INFORMATION = """\
Model: \t\t {model}
IRQ:   \t\t 150
GPU UUID: \t {uuid}
Video BIOS: \t 94.02.71.40.6a
Bus Type: \t PCIe
DMA Size: \t 47 bits
DMA Mask: \t 0x7fffffffffff
Bus Location: \t {address}
Device Minor: \t {minor}
GPU Firmware: \t {driver}
GPU Excluded:\t {excluded}
"""
_OF_PROCESSOR = "cpu_cores_count 16\nsimd_count 0\nunique_id 0\n"


def write(file: Path, text: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def add_nvidia(
    root: Path,
    address: str = "0000:01:00.0",
    *,
    minor: int = 0,
    model: str = "NVIDIA RTX A4000",
    uuid: str = UUIDS[0],
    device: str = "24b0",
    driver: str = "535.54.03",
    excluded: str = "No",
    status: str = "active",
) -> Path:
    """Add a GPU as NVIDIA's driver shows it. Return its folder below /proc."""
    version = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue Jun  6 22:20:39 UTC 2023"
    write(root / "proc/driver/nvidia/version", f"{version}\nGCC version: 12.3.0\n")
    folder = root / "proc/driver/nvidia/gpus" / address
    information = _INFORMATION.format(
        model=model, uuid=uuid, address=address, minor=minor, driver=driver, excluded=excluded
    )
    write(folder / "information", information)
    write(root / "sys/bus/pci/devices" / address / "device", f"0x{device}\n")
    write(root / "sys/bus/pci/devices" / address / "power/runtime_status", f"{status}\n")
    write(root / f"dev/nvidia{minor}")
    use(root, 0)
    write(root / "proc/2/comm", "kthreadd\n")  # not a container
    return folder


def divide(root: Path, minor: int, *numbers: tuple[int, int]) -> None:
    """Divide a GPU into instances with these numbers, with their files of access."""
    mig, caps = root / f"proc/driver/nvidia/capabilities/gpu{minor}/mig", root / "dev/nvidia-caps"
    write(mig / "config")
    for own, compute in numbers:
        for folder, number in ((mig / f"gi{own}", 9 * own), (mig / f"gi{own}/ci{compute}", 9 * own + compute + 1)):
            write(folder / "access", f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
            write(caps / f"nvidia-cap{number}")


def use(root: Path, programs: int) -> None:
    """Have the tree show that programs have device files of NVIDIA's driver open. Its other modules always do."""
    write(root / "sys/module/nvidia/refcnt", f"{programs + 2}\n")
    for module in ("nvidia_uvm", "nvidia_modeset"):
        write(root / "sys/module/nvidia/holders" / module)


def add_amd(
    root: Path,
    node: int = 1,
    *,
    minor: int = 128,
    unique_id: int = 0x73C8A5D4FD3A1C05,
    device: int = 0x73BF,
    memory_bytes: int = 17163091968,
    product: str = "",
    cores: int = 0,
) -> None:
    """Add a GPU as AMD's driver shows it."""
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    write(nodes / "0/properties", _OF_PROCESSOR)
    properties = {
        "cpu_cores_count": cores, "simd_count": 160, "gfx_target_version": 100300, "vendor_id": 4098,
        "device_id": device, "location_id": 0x300 + node - 1, "domain": 0, "drm_render_minor": minor,
        "unique_id": unique_id,
    }  # fmt: skip
    write(nodes / f"{node}/properties", "".join(f"{name} {value}\n" for name, value in properties.items()))
    write(nodes / f"{node}/name", "navi21\n")
    drm = root / f"sys/class/drm/renderD{minor}/device"
    write(drm / "mem_info_vram_total", f"{memory_bytes}\n")
    write(drm / "gpu_busy_percent", "0\n")
    if product:
        write(drm / "product_name", f"{product}\n")
    write(root / f"dev/dri/renderD{minor}")
    write(root / "dev/kfd")
    write(root / "proc/2/comm", "kthreadd\n")
