"""A grid's past over REST, exported, and read by the simulator."""

from __future__ import annotations

from pathlib import Path

from loopline.cli.render.archives import fta, swf
from loopline_shared.model import Outcome, Result
from loopline_shared.protocol.worker_link import Run
from loopline_shared.rest.bodies import Page, ParallelReport, PastJob, WorkerStay
from loopline_simulator.traces.fta import read_event_trace
from loopline_simulator.traces.swf import read_jobs
from tests.api.bench import done, running_master, until


def _ends(run: Run) -> Result:
    if run.command[0] == "fails":
        return Result(run.attempt, Outcome.FAILED, 1)
    return done(run, wall_s=2.0**-12, cpu_s=2.0**-13)


async def test_exported_grid_is_a_workload_for_the_simulator(tmp_path: Path) -> None:
    async with running_master(tmp_path) as master:
        async with master.worker("ant", does=_ends):
            works = await master.submit(command=["works"], parameters={"i": {"range": [1, 3]}})
            fails = await master.submit(command=["fails"], max_attempts=1)

            async def are_over() -> bool:
                states = [(await master.get(f"/jobs/{job}"))["state"] for job in (works, fails)]
                return states == ["succeeded", "failed"]

            await until(are_over)
        found = Page[PastJob].model_validate(await master.get("/history/jobs?limit=1"))
        rest = Page[PastJob].model_validate(await master.get(f"/history/jobs?cursor={found.next}"))
        assert rest.next is None
        jobs = list(read_jobs("".join(swf([*found.items, *rest.items])).splitlines()))
        assert [(job.processors, job.status) for job in jobs] == [(3, 1), (1, 0)]
        assert jobs[1].run_time is None
        stays = Page[WorkerStay].model_validate(await master.get("/history/stays"))
        assert list(read_event_trace("".join(fta(stays.items)).splitlines())) == ["node-1"]
        report = ParallelReport.model_validate(await master.get("/history/parallel"))
        assert report.jobs == 0
        assert report.offered_s > 0
        assert (await master.ask("GET", "/history/jobs?cursor=x")).status == 400
