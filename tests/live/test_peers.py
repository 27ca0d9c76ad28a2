"""File transfers between workers of a real grid, with killed workers and without the master."""

from __future__ import annotations

import hashlib
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.harness.lab import Lab, obstacle
from benchmarks.harness.lab_grid import FAULTS, Case
from benchmarks.rates.transfers import measure
from loopline.transfer import files
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState
from loopline_shared.rest.bodies import NetworkView
from loopline_shared.rest.trust import encrypted, trusting
from tests.live.grid import Gate, Grid, wait_for

MIB = 2**20
SLOWLY = {"LOOPLINE_PEER_BYTES_S": str(4 * MIB)}


async def upload(grid: Grid, folder: Path, mib: int) -> str:
    file = folder / "large.bin"
    file.write_bytes(b"".join(hashlib.blake2b(bytes([n])).digest() * (MIB // 64) for n in range(mib)) + b"end")
    return await files.upload(grid.client(), file)


async def submit(grid: Grid, sha256: str, tasks: int = 1, then: str = "true") -> int:
    inputs = {"large.bin": f"sha256:{sha256}"}
    return await grid.submit(f"sha256sum large.bin; {then}", tasks=tasks, inputs=inputs, max_replicas=1)


async def sums(grid: Grid, job: int, tasks: int) -> set[str]:
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    results = [result async for result in grid.client().results(job)]
    assert len(results) == tasks
    return {result.stdout.split()[0] for result in results}


def has_bytes(grid: Grid, name: str, sha256: str) -> int:
    """Return how many bytes of a file a worker has."""
    cache = grid.folder / name / "cache"
    found = [place for place in (cache / sha256, cache / "incoming" / sha256) if place.exists()]
    return found[0].stat().st_size if found else 0


async def has_at_least(grid: Grid, name: str, sha256: str, count: int) -> None:
    async def has() -> bool:
        return has_bytes(grid, name, sha256) >= count

    await wait_for(f"{name} to have {count:,} bytes", has)


async def has_reported_twice(grid: Grid, name: str) -> None:
    seen = set[float | None]()

    async def has() -> bool:
        seen.add((await grid.client().worker(name)).reported_at)
        return len(seen) > 2

    await wait_for(f"two Reports of {name}", has)


def metric(grid: Grid, name: str) -> float:
    token = (grid.data_dir / "tokens" / "admin").read_text().strip()
    ca = grid.data_dir / "tokens" / "ca.pem"
    url, tls = grid.url, trusting(ca.read_text()) if ca.exists() else None
    request = urllib.request.Request(
        f"{encrypted(url) if tls else url}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, context=tls) as answer:
        lines = [line.split() for line in answer.read().decode().splitlines()]
    return float(next((words[1] for words in lines if words[0] == name), 0.0))


async def bee_fetches_from_ant(peers: Grid, tmp_path: Path, mib_s: int = 4) -> tuple[str, int, Gate]:
    """Return a file of 16 MiB, the job of two tasks with this input, and the gate that they wait for."""
    sha256 = await upload(peers, tmp_path, 16)
    await peers.start_worker("ant")
    assert await sums(peers, await submit(peers, sha256), 1) == {sha256}
    gate = peers.gate()
    job = await submit(peers, sha256, tasks=2, then=gate.wait)
    await peers.start_worker("bee", settings={"LOOPLINE_PEER_BYTES_S": str(mib_s * MIB)})
    return sha256, job, gate


@pytest.mark.campaign
async def test_worker_killed_in_a_pipeline_stops_no_other(peers: Grid, tmp_path: Path) -> None:
    """Three workers fetch in a pipeline, and one is killed halfway; the others get the file from each other."""
    sha256 = await upload(peers, tmp_path, 24)
    gate = peers.gate()
    for name in ("ant", "bee", "cat"):
        await peers.start_worker(name, settings=SLOWLY)
    await peers.connected("ant", "bee", "cat")
    job = await submit(peers, sha256, tasks=3, then=gate.wait)
    for name in ("ant", "bee", "cat"):
        await has_at_least(peers, name, sha256, 8 * MIB)
    await peers.kill_worker("bee")
    gate.open()
    assert await sums(peers, job, 3) == {sha256}
    assert metric(peers, "loopline_peer_bytes_total") > 12 * MIB
    for name in ("ant", "cat"):
        content = (peers.folder / name / "cache" / sha256).read_bytes()
        assert hashlib.sha256(content).hexdigest() == sha256


@pytest.mark.campaign
async def test_transfer_continues_without_the_master_and_after_its_restart(peers: Grid, tmp_path: Path) -> None:
    sha256, job, gate = await bee_fetches_from_ant(peers, tmp_path)
    await has_at_least(peers, "bee", sha256, 4 * MIB)
    await peers.kill_master()
    await has_at_least(peers, "bee", sha256, 16 * MIB + 3)
    await peers.start_master()
    gate.open()
    assert await sums(peers, job, 2) == {sha256}
    assert "source" not in peers.log("bee")  # no source was blamed


async def test_owner_can_refuse_transfers(peers: Grid, tmp_path: Path) -> None:
    sha256 = await upload(peers, tmp_path, 4)
    await peers.start_worker("ant", settings={"LOOPLINE_PEER_FILES": "false"})
    assert await sums(peers, await submit(peers, sha256), 1) == {sha256}
    gate = peers.gate()
    job = await submit(peers, sha256, tasks=2, then=gate.wait)
    await peers.start_worker("bee")
    await has_at_least(peers, "bee", sha256, 4 * MIB + 3)
    assert metric(peers, "loopline_peer_bytes_total") == 0
    assert "is open to other workers" not in peers.log("ant")
    gate.open()
    assert await sums(peers, job, 2) == {sha256}


async def test_killed_agent_resumes_its_transfer(peers: Grid, tmp_path: Path) -> None:
    sha256, job, gate = await bee_fetches_from_ant(peers, tmp_path, mib_s=1)
    await has_at_least(peers, "bee", sha256, 2 * MIB)
    await peers.kill_worker("bee")
    had = has_bytes(peers, "bee", sha256)
    assert had < 16 * MIB

    async def is_away() -> bool:
        return not (await peers.client().worker("bee")).connected

    await wait_for("its last Report to be counted", is_away)
    before = metric(peers, "loopline_peer_bytes_total")
    await peers.start_worker("bee")
    await has_at_least(peers, "bee", sha256, 16 * MIB + 3)
    gate.open()
    assert await sums(peers, job, 2) == {sha256}
    assert metric(peers, "loopline_peer_bytes_total") - before <= 16 * MIB + 3 - had + 2**18


async def test_output_of_a_job_reaches_the_next_job_from_its_worker(peers: Grid) -> None:
    script = "yes {i} of many | head -c 3000001 > made.bin; sha256sum made.bin"
    await peers.start_worker("ant", "--label", "maker")
    job = await peers.submit(script, outputs=["made.bin"], requires={"labels": ["maker"]})
    (sha256,) = await sums(peers, job, 1)
    await peers.start_worker("bee", "--label", "taker", module="tests.live.patient_worker")
    await has_at_least(peers, "ant", sha256, 3000001)
    await has_reported_twice(peers, "ant")  # the first may be older than its copy
    then = {"after": [job], "requires": {"labels": ["taker"]}, "inputs": {"large.bin": f"sha256:{sha256}"}}
    taken = await peers.submit("sha256sum large.bin", **then)
    assert await sums(peers, taken, 1) == {sha256}
    assert metric(peers, "loopline_peer_bytes_total") == 3000001


@pytest.mark.campaign
async def test_network_is_probed_on_request_only_while_the_grid_is_idle(peers: Grid) -> None:
    for name in ("ant", "bee"):
        await peers.start_worker(name)
    await peers.connected("ant", "bee")
    client, gate = peers.client(), peers.gate()
    job = await peers.submit(gate.wait)
    with pytest.raises(LooplineError, match=r"cannot be measured now: (ant|bee) has tasks"):
        await client.measure_network()
    gate.open()
    await peers.ended(job)

    async def is_begun() -> bool:
        with suppress(LooplineError):  # the ports may not be open yet
            await client.measure_network()
            return True
        return False

    async def is_measured() -> NetworkView | None:
        view = await client.network()
        return view if view.measurement.outcome == "measured" else None

    await wait_for("the measuring to begin", is_begun)
    view = await wait_for("the network to be measured", is_measured)
    assert view.measurement.probes == 2  # between both workers, and from the master
    assert {node.parent for node in view.nodes if not node.is_switch} == {"127.0.0.0/8"}


@pytest.mark.campaign
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_of_one_worker_keeps_no_other_from_the_file(fault: str) -> None:
    """Encrypted as by default, in namespaces with shaped links at two switches."""
    if reason := obstacle():
        pytest.skip(reason)
    found = measure(Case(fault, knows="written", fault=fault), Lab(6, 100.0, 25.0), 16, None)
    assert found.right >= found.expected, "the faulty worker may have the file too"
    assert found.is_quarantined == (fault == "worker lies")
    assert found.a_to_b < 2
