"""The progress of running tasks over REST."""

from __future__ import annotations

from typing import Any

from loopline_shared.model import Held
from loopline_shared.protocol.worker_link import Run
from tests.api.bench import Bench, FakeWorker, done, until


async def tell(worker: FakeWorker, *held: Held) -> None:
    _, frame = worker.session.report(list(held), (), worker.load)
    await worker.socket.send_bytes(frame)


async def test_progress_of_tasks_and_of_their_job_is_shown(master: Bench) -> None:
    async with master.worker(does=lambda run: None) as worker:
        job = await master.submit(parameters={"i": {"range": [1, 4]}})

        async def both() -> list[Run] | None:
            runs = list(worker.holding.values())
            return runs if len(runs) > 1 else None

        one, two, *rest = await until(both)
        await tell(worker, Held(one.attempt, progress=0.5), *(Held(run.attempt) for run in (two, *rest)))

        async def shown() -> dict[str, Any] | None:
            detail: dict[str, Any] = await master.get(f"/jobs/{job}", "reader")
            return detail if detail["progress"] else None

        assert (await until(shown))["progress"] == 0.5 / 4
        items = (await master.get(f"/jobs/{job}/tasks", "reader"))["items"]
        assert [item["progress"] for item in items if item["number"] == one.attempt.task] == [0.5]
        assert {item["progress"] for item in items if item["number"] != one.attempt.task} == {None}
        assert (await master.get(f"/jobs/{job}/tasks/{one.attempt.task}", "reader"))["progress"] == 0.5
        del worker.holding[one.attempt]
        await worker.report(done(one))

        async def over() -> bool:
            task: dict[str, Any] = await master.get(f"/jobs/{job}/tasks/{one.attempt.task}", "reader")
            return bool(task["state"] == "succeeded" and task["progress"] is None)

        await until(over)


async def test_progress_of_attempts_that_a_worker_does_not_have_is_ignored(master: Bench) -> None:
    async with master.worker("w1", does=lambda run: None) as one, master.worker("w2", does=lambda run: None) as two:
        job = await master.submit()

        async def holder() -> tuple[FakeWorker, FakeWorker] | None:
            return (one, two) if one.holding else (two, one) if two.holding else None

        has, other = await until(holder)
        (run,) = has.holding.values()
        await tell(other, Held(run.attempt, progress=0.9))
        await tell(has, Held(run.attempt, progress=0.3))

        async def shown() -> float | None:
            progress: float | None = (await master.get(f"/jobs/{job}/tasks/1", "reader"))["progress"]
            return progress

        assert await until(shown) == 0.3
