"""Chains and quorums with real processes, failures and a killed master."""

from __future__ import annotations

import pytest

from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState, TaskId
from tests.live.grid import Grid, wait_for


async def test_chain_continues_when_its_failed_job_is_retried(grid: Grid) -> None:
    await grid.start_worker("ant", slots=2)
    gate, client = grid.gate(), grid.client()
    first = await grid.submit("echo {i}", tasks=3)
    middle = await grid.submit(f"[ -e {gate.file} ]", max_attempts=1, after=[first])
    last = await grid.submit("echo last", after=[first, middle])
    assert (await grid.ended(middle)).state is JobState.FAILED
    view = await grid.job(last)
    assert (view.state, view.waiting_for) == (JobState.WAITING, [middle])
    explained = await client.explain(last)
    assert explained.sentence == f"can never start: job {middle} has failed; retry that one, or cancel this one"
    assert explained.reasons[0].job == middle
    gate.open()
    await client.retry(middle)
    assert (await grid.ended(last)).state is JobState.SUCCEEDED
    ended = [await grid.job(job) for job in (first, middle, last)]
    assert [job.state.value for job in ended] == ["succeeded"] * 3
    assert ended[0].finished_at <= ended[1].entered_at <= ended[1].finished_at <= ended[2].entered_at  # type: ignore[operator]
    assert (await client.explain(last)).sentence.startswith("it has succeeded in ")


async def test_unknown_dependency_is_a_clear_error(grid: Grid) -> None:
    with pytest.raises(LooplineError) as caught:
        await grid.submit("true", after=[99])
    assert (caught.value.status, caught.value.code) == (422, "no_such_job")


async def test_waiting_jobs_survive_a_killed_master(grid: Grid) -> None:
    gate = grid.gate()
    done = await grid.submit("true")
    await grid.start_worker("ant")
    assert (await grid.ended(done)).state is JobState.SUCCEEDED
    first = await grid.submit(f"{gate.wait}; echo done")
    waiting = [await grid.submit("echo {i}", tasks=2, after=[done, first])]
    waiting.append(await grid.submit("echo {i}", after=waiting))
    await grid.kill_master()
    await grid.start_master()
    assert [(await grid.job(job)).state for job in waiting] == [JobState.WAITING] * 2
    gate.open()
    assert (await grid.ended(waiting[-1])).state is JobState.SUCCEEDED


async def test_quorum_outvotes_a_worker_with_other_results(grid: Grid) -> None:
    for name in ("ant", "liar"):
        await grid.start_worker(name, slots=2)
    client = grid.client()
    job = await grid.submit("[ $LOOPLINE_WORKER = liar ] && echo 6 || echo {i}", tasks=5, quorum=2)

    async def all_differ() -> bool:
        return (await grid.job(job)).mismatches == 5

    await wait_for("two results of each, which differ", all_differ)
    await grid.start_worker("bee", slots=2)
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    outputs = {result.number: result.stdout async for result in client.results(job)}
    assert outputs == {number: f"{number}\n" for number in range(1, 6)}
    liars = {worker.name async for worker in client.workers() if worker.mismatches}
    assert liars == {"liar"}
    marked = [task async for task in client.tasks(job) if task.mismatch]
    assert len(marked) == 5
    detail = await client.task(TaskId(job, marked[0].number))
    assert len({vote.digest for vote in detail.votes}) == 2
    assert "differ" in (await client.explain(marked[0].id)).sentence
    assert "contradict another worker's" in (await client.explain("liar")).sentence
    assert "two of its results differ" in grid.log("master")


async def test_eta_is_given_and_compared_with_the_completion(grid: Grid) -> None:
    await grid.start_worker("ant")
    gate, client = grid.gate(), grid.client()
    job = await grid.submit(f"[ {{i}} -le 6 ] || {{ {gate.wait}; sleep 0.2; }}; echo {{i}}", tasks=12, max_replicas=1)
    assert "nothing" not in (await grid.job(job)).eta_note

    async def has_eta() -> bool:
        view = await client.job(job)
        return view.eta is not None and view.eta.p50_at <= view.eta.p90_at

    await wait_for("an ETA", has_eta)
    gate.open()
    assert (await grid.ended(job)).eta is None

    async def is_judged() -> bool:
        """The comparison runs at the next change after a pause."""
        await client.drain("ant")
        await client.undrain("ant")
        return any(moment.jobs for moment in (await client.forecasts()).moments)

    await wait_for("the record of it", is_judged)
