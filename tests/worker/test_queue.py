"""Runs that wait at an agent for a slot: started without a frame, kept for the next agent."""

import time

import psutil
import pytest

from loopline_shared.model import AttemptId, Outcome, Result
from loopline_shared.protocol.attempt_ranges import attempts_of
from loopline_shared.protocol.worker_link import Report, Run
from loopline_worker.state.journal import Journal
from tests.worker.bench import processes_of, run_of, until
from tests.worker.small_master import SmallMaster
from tests.worker.test_agent import Start, begun, start

__all__ = ["start"]  # a fixture


def gated(task: int) -> Run:
    """A run that ends when the file in its scratch folder is removed."""
    return run_of("sh", "-c", "echo > begun; while [ -e begun ]; do sleep 0.02; done", task=task)


def waiting(report: Report) -> list[AttemptId]:
    return list(attempts_of(report.waiting))


def result_of(master: SmallMaster, run: Run) -> Result | None:
    return next((result for result in master.results if result.attempt == run.attempt), None)


async def test_next_run_starts_as_soon_as_a_slot_is_free(master: SmallMaster, start: Start) -> None:
    agent = start(slots=1)
    first, second, third = (gated(task) for task in (1, 2, 3))
    await master.say(first, second, third)
    await begun(agent, first)
    await until(lambda: master.reports and waiting(master.reports[-1]) == [second.attempt, third.attempt])
    assert not (agent.folder / "scratch" / str(second.attempt)).exists()
    await master.stop()
    (agent.folder / "scratch" / str(first.attempt) / "begun").unlink()
    await begun(agent, second)  # without a master


async def test_cancelled_waiting_run_leaves_no_trace(master: SmallMaster, start: Start) -> None:
    agent = start(slots=1)
    first, second = gated(1), gated(2)
    await master.say(first, second)
    await begun(agent, first)
    await master.say(cancel=(second.attempt,))
    await until(lambda: result_of(master, second))
    assert result_of(master, second) == Result(second.attempt, Outcome.CANCELLED)
    assert not (agent.folder / "scratch" / str(second.attempt)).exists()
    assert "1.2.1" not in " ".join(agent.kept())


async def test_queue_of_a_killed_agent_is_run_by_the_next(master: SmallMaster, start: Start) -> None:
    """Not before the master has received it in a Report; the running attempt is given back."""
    agent = start(slots=1)
    first, second, third = (gated(task) for task in (1, 2, 3))
    await master.say(first, second, third)
    await begun(agent, first)
    await until(lambda: master.reports and len(waiting(master.reports[-1])) == 2)
    await agent.crash()
    master.is_mute = True
    reports = len(master.reports)
    again = start(slots=1)
    await until(lambda: len(master.reports) > reports)
    said = master.reports[reports]
    assert waiting(said) == [second.attempt, third.attempt]
    assert [(result.attempt, result.outcome) for result in said.results] == [(first.attempt, Outcome.GIVEN_BACK)]
    assert said.results[0].took_down
    assert processes_of(again.folder) == []
    master.is_mute = False
    await master._assign(seen=said.seq, cancel=(second.attempt,))
    await begun(again, third)
    assert not (again.folder / "scratch" / str(second.attempt)).exists()
    (again.folder / "scratch" / str(third.attempt) / "begun").unlink()
    await master.results_of(first, second, third)
    await until(lambda: (again.folder / "ledger.jsonl").stat().st_size == 0)


async def test_reboot_of_the_computer_does_not_count_as_a_killed_agent(
    master: SmallMaster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = start(slots=1)
    run = gated(1)
    await master.say(run)
    await begun(agent, run)
    await agent.crash()
    monkeypatch.setattr(psutil, "boot_time", lambda: time.time() + 1)
    start(slots=1)
    (result,) = await master.results_of(run)
    assert (result.outcome, result.took_down) == (Outcome.GIVEN_BACK, False)


async def test_stopped_agent_gives_waiting_runs_back(master: SmallMaster, start: Start) -> None:
    agent = start(slots=1)
    first, second = gated(1), gated(2)
    await master.say(first, second)
    await begun(agent, first)
    await agent.stop()
    results = await master.results_of(first, second)
    assert [(result.outcome, result.took_down) for result in results] == [(Outcome.GIVEN_BACK, False)] * 2
    assert (agent.folder / "ledger.jsonl").read_bytes() == b""


async def test_link_delay_is_measured_from_the_masters_answers(master: SmallMaster, start: Start) -> None:
    start(slots=1)
    long = run_of("sh", "-c", "head -c 200000 /dev/zero", task=1)
    await master.say(long)
    await master.results_of(long)
    await master.say(run_of("true", task=2))
    await until(lambda: master.reports[-1].load.throughput_bytes_s)
    load = master.reports[-1].load
    assert load.delay_s is not None
    assert 0 <= load.delay_s < 60


async def test_run_that_cannot_be_journalled_is_given_back(
    master: SmallMaster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Journal._append

    def refuse(journal: Journal, lines: bytes) -> None:
        if b"came" in lines or b"began" in lines:
            raise OSError(28, "No space left on device")
        append(journal, lines)

    monkeypatch.setattr(Journal, "_append", refuse)
    agent = start(slots=1)
    await until(lambda: master.reports)
    first, second = gated(1), gated(2)
    await master.say(first, second)
    await begun(agent, first)
    await until(lambda: result_of(master, second))
    assert result_of(master, second).outcome is Outcome.GIVEN_BACK  # type: ignore[union-attr]
    assert not agent.task.done()
