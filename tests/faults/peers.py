"""Large files between workers; one worker sends wrong bytes to the others."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from loopline.transfer import files
from tests.faults import jobs
from tests.faults.driver import Campaign, Fault, Feature
from tests.faults.jobs import Drawn

MIB = 2**20


async def reads_a_large_file(campaign: Campaign, name: str) -> Drawn:
    """Draw tasks that need one file, which workers forward to each other."""
    chance = campaign.drawing
    pieces, tasks = chance.randint(8, 48), chance.randint(2, 6)
    folder = campaign.folder / "uploads"
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_bytes(b"".join(hashlib.blake2b(f"{name} {n}".encode()).digest() * (MIB // 256) for n in range(pieces)))
    sha256 = await files.upload(campaign.client, file)
    script = "sha256sum < large.bin; sleep 0.2"
    spec = jobs.job(name, script, tasks, chance, inputs={"large.bin": f"sha256:{sha256}"})
    return Drawn(spec, tasks, lambda i: f"{hashlib.sha256(file.read_bytes()).hexdigest()}  -\n")


async def spoil_cache(campaign: Campaign, worker: str) -> bool:
    """Damage a file in a worker's cache: the worker must neither forward it nor let a task read it."""
    cache = campaign.folder / worker / "cache"
    there = sorted(one for one in cache.glob("*") if one.is_file() and one.stat().st_size >= MIB)
    if not there:
        return False
    await asyncio.to_thread(_spoil, campaign.chance.choice(there))
    return True


def _spoil(file: Path) -> None:
    """Replace a file's content; open descriptors and links keep the old one."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    spoiled = file.with_name(f"{file.name}.spoiled")
    spoiled.write_bytes(content)
    spoiled.replace(file)


PEERS = Feature(
    "peers",
    faults=(Fault("file in a cache spoiled", spoil_cache),),
    bugs={"a_piece_is_not_checked": "brought"},
    master=("--peers", "on", "--peer-file-bytes", str(MIB)),
    worker={"LOOPLINE_PEER_BYTES_S": str(8 * MIB)},
    jobs=(reads_a_large_file, reads_a_large_file),
    strange={"cat": "a_peer_lies"},
)
