"""Energy on a real grid with a worker that declares watts and one without a figure."""

from __future__ import annotations

import asyncio
import os

import pytest

from loopline_shared.model import JobState
from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_shared.rest.bodies import HistoryReport
from loopline_worker.host.computer import Computer
from tests.live.grid import Grid, wait_for
from tests.warm import starting

BURNS = "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done"
IDLE_W, BUSY_W = 40.0, 140.0


async def loopline(grid: Grid, *words: str) -> str:
    """Return what a command prints."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOOPLINE", "XDG"))}
    token = (grid.data_dir / "tokens" / "admin").read_text().strip()
    environment |= {"HOME": str(grid.folder), "LOOPLINE_MASTER": grid.url, "LOOPLINE_TOKEN": token, "COLUMNS": "150"}
    process = await asyncio.create_subprocess_exec(
        *starting("loopline"), *words, env=environment, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said.decode()


async def test_energy_of_declared_watts_is_charged_by_cpu_time(grid: Grid) -> None:
    await grid.kill_master()
    await grid.start_master(*grid.flags, "--co2-grams-per-kwh", "400")
    await grid.start_worker("ant", "--watts-idle", str(IDLE_W), "--watts-busy", str(BUSY_W))
    job = await grid.submit(BURNS, tasks=3)
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    gate, burnt = grid.gate(), grid.folder / "burnt"
    stopped = await grid.submit(f"{BURNS}; touch {burnt}; {gate.wait}")

    async def has_burnt() -> bool:
        return burnt.exists()

    await wait_for("the CPU time to be used", has_burnt)
    await grid.kill_master()
    await grid.start_master()
    await grid.client().cancel(stopped)
    await grid.attempts_when("its end", stopped, lambda all_: all_[0].ended_at is not None)
    await grid.stop_worker("ant")
    await grid.start_worker("bee")
    await grid.ended(await grid.submit(BURNS))

    joules_per_cpu_s = (BUSY_W - IDLE_W) / Computer.here().measured_cores
    attempts = [attempt for number in (job, stopped) for attempt in await grid.attempts(number)]
    useful, wasted = (
        sum(attempt.cpu_s for attempt in attempts if attempt.accepted is is_accepted) * joules_per_cpu_s / 3.6e6
        for is_accepted in (True, False)
    )
    assert useful > 0
    assert wasted > 0
    for subject, name in (("user", (await grid.client().whoami()).name), ("worker", "ant")):
        report = HistoryReport.model_validate_json(await loopline(grid, "energy", "--json", "--by", subject))
        energy = {line.subject: line.energy for line in report.lines}
        found = energy.pop(name)
        assert found is not None
        assert found.useful_kwh == pytest.approx(useful, rel=0.01)
        assert found.wasted_kwh == pytest.approx(wasted, rel=0.01)
        assert found.by_source.keys() == {EnergySource.DECLARED}
        assert set(energy.values()) <= {None}, "the other worker neither measures nor declares"
    shown = await loopline(grid, "energy", "--by", "job")
    assert "Wh wasted" in shown
    assert "of CO2 at 400 g per kWh" in shown
    assert "declared watts" in shown
    assert "without a figure: 1 job" in shown
    assert "useful, 0 Wh wasted (declared watts)" in " ".join((await loopline(grid, "job", str(job))).split())
