"""The whole agent, in this process, against a small master."""

import asyncio
import errno
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from loopline_shared.errors import LooplineError
from loopline_shared.model import AttemptId, Outcome, Result
from loopline_shared.protocol.attempt_ranges import attempts_of
from loopline_shared.protocol.worker_link import Refused, Run
from loopline_worker import agent as agent_module
from loopline_worker.agent import Agent
from loopline_worker.attempts import runner
from loopline_worker.core import attempts
from loopline_worker.core.instructions import Entry
from loopline_worker.link import link
from loopline_worker.link.master_trust import MasterTrust
from loopline_worker.settings import WorkerSettings
from loopline_worker.state import result_delivery
from loopline_worker.state.data_directory import DataDirectory
from loopline_worker.state.journal import Journal
from tests.worker.bench import processes_of, python, run_of, until
from tests.worker.small_master import SmallMaster


class Started:
    """A running agent with the data folder ``folder``."""

    def __init__(self, folder: Path, url: str, settings: dict[str, Any]) -> None:
        quick = {
            "retry_min_s": 0.02,
            "retry_max_s": 0.05,
            "disk_reserve_bytes": 0,
            "token": "secret",
            "name": "w1",
            "dedicated": True,
        }
        self.folder = folder
        self.data_directory = DataDirectory(folder)
        self.task = asyncio.create_task(
            agent_module.run(
                WorkerSettings.load(**quick | {"master": url, "data_dir": folder, "slots": 2} | settings),
                self.data_directory,
                self._started,
            )
        )

    def _started(self, agent: Agent) -> None:
        self.agent = agent

    def kept(self) -> list[str]:
        """Return the results and files that the next agent would find."""
        copy = self.folder / "copy"
        copy.write_bytes((self.folder / "ledger.jsonl").read_bytes())
        ledger = Journal(copy)
        ledger.close()
        files = (file.name for file in (self.folder / "spool").iterdir())
        return sorted([*(str(result.attempt) for result in ledger.results), *files])

    async def stop(self) -> None:
        self.agent.stop()
        await self.task

    async def crash(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        self.data_directory.close()


Start = Callable[..., Started]


@pytest.fixture
async def start(tmp_path: Path, master: SmallMaster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    monkeypatch.setattr(agent_module, "SAMPLE_EVERY_S", 0.05)
    monkeypatch.setattr(agent_module, "_DRAIN_WITHIN_S", 60.0)
    monkeypatch.setattr(result_delivery, "_RETRY_S", 0.05)
    agents: list[Started] = []

    def begin(folder: str = "data", **settings: Any) -> Started:
        agents.append(Started(tmp_path / folder, master.url, settings))
        return agents[-1]

    yield begin
    for agent in agents:
        await agent.crash()


async def begun(agent: Started, run: Run) -> None:
    await until(lambda: (agent.folder / "scratch" / str(run.attempt) / "begun").exists())


async def test_task_runs_from_hello_to_an_empty_spool(
    master: SmallMaster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "REPORT_WITHIN_S", 3600)
    master.report_every_s = master.lease_s = 3600.0
    agent = start(labels="gpu")
    run = run_of("sh", "-c", "echo hello")
    await master.say(run)
    (result,) = await master.results_of(run)
    assert (result.outcome, result.stdout.data) == (Outcome.SUCCEEDED, b"hello\n")
    await until(lambda: agent.kept() == [])
    assert master.tokens == ["Bearer secret"]
    assert (master.hellos[0].worker, master.hellos[0].facts.slots) == ("w1", 2)
    assert master.hellos[0].facts.labels == ("gpu",)
    assert master.reports[0].load.slots == 2
    assert master.reports[0].load.disk_free_bytes > 0
    told = [len(report.results) for report in master.reports]
    assert told in ([0, 1], [1]), "two frames per task, or one if it ends before the first, and no others"


async def test_plain_task_enters_no_file_of_a_feature_that_it_does_not_use(
    master: SmallMaster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "SAMPLE_EVERY_S", 600.0)
    first, second = run_of("echo", "hello"), run_of("echo", "hello", task=2)
    start()
    await master.say(first)
    await master.results_of(first)
    top, entered = str(Path(agent_module.__file__).parent), set[str]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(top):
            entered.add(frame.f_code.co_filename[len(top) + 1 :])

    sys.setprofile(note)
    try:
        await master.say(second)
        await master.results_of(second)
    finally:
        sys.setprofile(None)
    doors = ("attempts/agent_wing", "core/machine_wing")
    wings = ("attempts/fence", "attempts/start_gate", "core/g", "checkpoints/", "environments/", "gpus/", "peers/")
    assert "attempts/attempt.py" in entered
    assert [file for file in sorted(entered) if file.startswith((*doors, *wings))] == []
    assert len(entered) <= 27, "\n".join(sorted(entered))


async def test_running_attempt_is_reported_soon(master: SmallMaster, start: Start) -> None:
    agent = start()
    run = run_of("sh", "-c", "echo > begun; sleep 100")
    await master.say(run)
    await begun(agent, run)
    await until(lambda: master.reports and [held.attempt for held in master.reports[-1].holding] == [run.attempt])
    assert master.reports[-1].seen > 0
    await master.say(run, cancel=(run.attempt,))
    (result,) = await master.results_of(run)
    assert result.outcome is Outcome.CANCELLED
    assert processes_of(agent.folder) == []


async def test_idle_worker_reports_at_the_interval_of_the_master(master: SmallMaster, start: Start) -> None:
    master.report_every_s = 0.05
    start()
    await until(lambda: len(master.reports) >= 4)
    assert [report.seq for report in master.reports[:4]] == [1, 2, 3, 4]


async def test_tasks_continue_without_the_master_and_results_wait(master: SmallMaster, start: Start) -> None:
    agent = start()
    run = run_of("sh", "-c", "echo > begun; while [ -e begun ]; do sleep 0.02; done; echo done")
    await master.say(run)
    await begun(agent, run)
    await master.stop()
    (agent.folder / "scratch" / str(run.attempt) / "begun").unlink()
    await until(lambda: agent.kept() == ["1.1.1"])
    await master.start()
    (result,) = await master.results_of(run)
    assert result.stdout.data == b"done\n"
    assert [hello.boot for hello in master.hellos] == [master.hellos[0].boot] * 2


async def test_result_is_sent_again_until_it_is_acknowledged(master: SmallMaster, start: Start) -> None:
    master.acknowledges = False
    agent = start()
    run = run_of("true")
    await master.say(run)
    await master.results_of(run)
    await master.hang_up()
    await until(lambda: len(master.results) == 2)
    assert agent.kept() == ["1.1.1"]
    master.acknowledges = True
    await master.hang_up()
    await until(lambda: agent.kept() == [])
    assert set(master.results) == {master.result(run.attempt)}


async def test_repeated_run_is_not_started_again(master: SmallMaster, start: Start, tmp_path: Path) -> None:
    master.acknowledges = False
    start()
    run, other = run_of("sh", "-c", f"echo x >> {tmp_path}/runs"), run_of("true", task=2)
    await master.say(run)
    await master.say(run)
    await master.results_of(run)
    await master.say(run, other)
    await master.results_of(run, other)
    assert (tmp_path / "runs").read_text() == "x\n"


async def test_results_survive_a_restart_of_the_agent(master: SmallMaster, start: Start) -> None:
    master.acknowledges = False
    agent = start()
    run = run_of("true")
    await master.say(run)
    await master.results_of(run)
    await agent.crash()
    master.acknowledges = True
    again = start()
    await until(lambda: len(master.results) == 2)
    await until(lambda: again.kept() == [])
    assert master.hellos[0].boot != master.hellos[1].boot


async def test_many_results_are_sent_in_several_reports(
    master: SmallMaster, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "MAX_RESULTS_PER_REPORT", 2)
    (tmp_path / "data").mkdir()
    journal = Journal(tmp_path / "data" / "ledger.jsonl")
    journal.write(Entry([Result(AttemptId(1, task, 1), Outcome.SUCCEEDED, 0) for task in (1, 2, 3)]))
    agent = start()
    await until(lambda: len(master.results) == 3)
    assert attempts_of(master.reports[0].delivering) == [AttemptId(1, 3, 1)]
    await until(lambda: agent.kept() == [])


async def test_long_output_is_uploaded_before_its_result(master: SmallMaster, start: Start) -> None:
    master.blob_status = 503
    agent = start()
    run = python("print('x' * 9_999)")
    await master.say(run)
    await until(lambda: "1.1.1" in agent.kept())
    await master.hang_up()
    await until(lambda: [report.seq for report in master.reports].count(1) == 2)
    first = [report for report in master.reports if report.seq == 1][-1]
    assert (first.holding, attempts_of(first.delivering)) == ((), [run.attempt])
    assert master.results == []
    await agent.crash()
    agent = start()  # continues from the spool
    await until(lambda: len(master.hellos) == 3)
    master.blob_status = 201
    (result,) = await master.results_of(run)
    assert result.stdout.sha256
    assert master.blobs[result.stdout.sha256] == b"x" * 9_999 + b"\n"
    await until(lambda: agent.kept() == [])


async def test_stalled_upload_restarts_when_the_link_is_open_again(master: SmallMaster, start: Start) -> None:
    """The computer slept, and its connections died without a word."""
    master.unanswered = 1
    agent = start()
    run = python("print('x' * 9_999)")
    await master.say(run)
    await until(lambda: master.asked)
    master.lease_s = master.report_every_s = 0.2  # from the next connection on
    agent.agent.resume_link()
    (result,) = await master.results_of(run)
    assert result.stdout.sha256 in master.blobs


async def test_results_without_a_life_are_delivered_to_the_first_master(master: SmallMaster, start: Start) -> None:
    master.blob_status = 503
    agent, run = start(), python("print('x' * 9_999)")
    await master.say(run)
    await until(lambda: "1.1.1" in agent.kept())
    await agent.crash()
    master.life = "one"  # the journal names none: a power cut took that line
    agent = start()
    await until(lambda: agent.task.done() or (len(master.hellos) == 2 and agent.agent.parts.journal.life == "one"))
    master.blob_status = 201
    await master.results_of(run)


async def test_beginning_of_refused_output_is_sent(master: SmallMaster, start: Start) -> None:
    master.blob_status = 413
    start()
    run = python("print('x' * 9_999)")
    await master.say(run)
    (result,) = await master.results_of(run)
    assert (result.stdout.sha256, result.stdout.cut, result.stdout.data) == (None, True, b"x" * 4096)
    assert result.stdout.size_bytes == 10_000


async def test_link_to_a_silent_master_is_closed(master: SmallMaster, start: Start) -> None:
    master.is_mute = True
    master.lease_s = master.report_every_s = 1.0
    start()
    await until(lambda: len(master.hellos) >= 2)


async def test_invalid_frame_closes_the_link(master: SmallMaster, start: Start) -> None:
    start()
    await until(lambda: master.is_connected)
    master._seq += 5
    await master.say()
    await until(lambda: len(master.hellos) >= 2)


@pytest.mark.parametrize("status", [401, 403])
async def test_wrong_token_at_the_first_connection_ends_the_agent(
    master: SmallMaster, start: Start, status: int
) -> None:
    master.status = status
    agent = start()
    with pytest.raises(LooplineError, match="does not accept this worker's token") as caught:
        await agent.task
    assert caught.value.status == status
    assert "loopline token create" in caught.value.hint


async def test_refusal_at_the_first_connection_ends_the_agent(master: SmallMaster, start: Start) -> None:
    master.refuses = Refused("wrong_name", "this token is another's", "join again")
    with pytest.raises(LooplineError, match="this token is another's") as caught:
        await start().task
    assert caught.value.hint == "join again"


async def test_certificate_of_an_earlier_name_is_replaced(master: SmallMaster, start: Start) -> None:
    agent = start(retry_min_s=1000.0, retry_max_s=1000.0)
    await until(lambda: master.is_connected)
    await until(lambda: agent.agent._link.is_open)
    identity = agent.agent.parts.http_client.trust.identity
    identity.keep("of the name that this computer had before it left")
    master.refuses = Refused("wrong_name", "this certificate is worker pc-1's", "join again")
    agent.agent._link.reopen()
    await until(lambda: len(master.hellos) == 3)
    assert identity.key_pair("") is None


@pytest.mark.parametrize("code", ["version", "same_identity", "too_many_workers"])
async def test_temporary_refusal_does_not_end_the_agent(
    master: SmallMaster, start: Start, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    master.refuses = Refused(code, "not now", "upgrade it")
    agent = start()
    await until(lambda: len(master.hellos) >= 3)
    assert not agent.task.done()
    assert caplog.text.count("not now (upgrade it)") == 1
    master.refuses = None
    await until(lambda: master.is_connected)


async def test_later_refusal_does_not_end_the_agent(
    master: SmallMaster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    agent = start()
    await until(lambda: master.is_connected)
    master.status = 401
    await master.hang_up()
    await until(lambda: len(master.tokens) >= 3)
    assert not agent.task.done()
    assert caplog.text.count("does not accept this worker's token") == 1
    master.status = 0
    await until(lambda: master.is_connected)


async def test_agent_reconnects_at_once_after_a_suspend(master: SmallMaster, start: Start) -> None:
    agent = start(retry_min_s=30.0, retry_max_s=60.0)
    await until(lambda: master.is_connected)  # the agent exists, but its Hello is not answered yet
    await until(lambda: agent.agent._link.is_open)
    agent.agent._link.reopen()  # ends an open connection and reconnects without a delay
    await until(lambda: len(master.hellos) == 2)
    await until(lambda: agent.agent._link.is_open)
    await master.hang_up()  # after a loss, the agent waits for 30 s
    await until(lambda: not agent.agent._link.is_open)
    agent.agent._link.reopen()
    await until(lambda: len(master.hellos) == 3)


async def test_old_certificate_is_renewed_on_an_open_link(
    master: SmallMaster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_LOOK_AT_CERTIFICATE_EVERY_S", 0.01)
    agent = start()
    await until(lambda: master.is_connected)
    await until(lambda: agent.agent._link.is_open)
    identity = agent.agent.parts.http_client.trust.identity
    identity.keep("of long ago")
    os.utime(identity._certificate, (0, 0))
    await until(lambda: len(master.hellos) > 1)
    identity.drop()


async def test_first_certificate_is_not_awaited(
    master: SmallMaster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_first = iter([True])
    monkeypatch.setattr(MasterTrust, "keep", lambda *_: next(is_first, False))
    agent = start(retry_min_s=1000.0, retry_max_s=1000.0)
    await until(lambda: len(master.hellos) == 2)
    await until(lambda: agent.agent._link.is_open)


async def test_address_without_a_master_is_retried(
    master: SmallMaster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    master.status = 404
    start()
    await until(lambda: len(master.tokens) >= 2)
    assert "is it a Loopline master?" in caplog.text


async def test_redirect_is_logged_but_not_followed(
    master: SmallMaster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    master.status, master.location = 308, f"{master.url}/elsewhere"
    start()
    await until(lambda: len(master.tokens) >= 2)
    assert f"answered HTTP 308, go to '{master.url}/elsewhere': if the master is there, name that" in caplog.text


async def test_stopping_agent_gives_its_attempts_back(
    master: SmallMaster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "STOP_GRACE_S", 0.1)
    agent = start()
    run = run_of("sh", "-c", "trap '' TERM; echo > begun; sleep 100")
    await master.say(run)
    await begun(agent, run)
    await agent.stop()
    (result,) = await master.results_of(run)
    assert (result.outcome, result.reason) == (Outcome.GIVEN_BACK, "the worker was stopped")
    assert master.reports[-1].load.slots == 0
    assert agent.kept() == []
    assert processes_of(agent.folder) == []


async def test_stopping_without_a_master_keeps_results(master: SmallMaster, start: Start) -> None:
    agent = start()
    run = run_of("sh", "-c", "echo > begun; sleep 100")
    await master.say(run)
    await begun(agent, run)
    await master.stop()
    await agent.stop()
    assert agent.kept() == ["1.1.1"]


async def test_no_slots_are_offered_if_the_disk_is_nearly_full(
    master: SmallMaster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start(disk_reserve_bytes=2**60)
    await until(lambda: master.reports)
    assert master.reports[0].load.slots == 0
    assert "offering no slots: only" in caplog.text


async def test_no_slots_are_offered_while_tasks_cannot_be_started(
    master: SmallMaster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    was_told, looks = asyncio.Event(), DataDirectory.is_writable
    monkeypatch.setattr(
        DataDirectory, "is_writable", lambda data_directory: was_told.is_set() and looks(data_directory)
    )
    agent = start()
    await until(lambda: master.is_connected)
    scratch = agent.folder / "scratch"
    scratch.rmdir()
    scratch.write_text("in the way")
    run = run_of("true")
    await master.say(run)
    (result,) = await master.results_of(run)
    assert result.outcome is Outcome.GIVEN_BACK
    await until(lambda: master.reports[-1].load.slots == 0)
    was_told.set()
    await until(lambda: master.reports[-1].load.slots == 2)  # the disk accepts files again


async def test_result_waits_until_the_disk_accepts_it(
    master: SmallMaster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_repaired = False
    monkeypatch.setattr(DataDirectory, "is_writable", lambda _self: is_repaired)
    agent = start()
    await until(lambda: master.is_connected)
    journal = agent.agent.parts.journal
    real, journal._file = journal._file, Path("/dev/full").open("ab", 0)  # noqa: SIM115
    run = run_of("true")
    await master.say(run)

    def is_delivering_without_slots() -> bool:
        last = master.reports[-1] if master.reports else None
        return (
            last is not None
            and attempts_of(last.delivering) == [run.attempt]
            and not (last.holding or last.load.slots)
        )

    await until(is_delivering_without_slots)
    journal._file, is_repaired = real, True
    assert (await master.results_of(run))[0].outcome is Outcome.SUCCEEDED


async def test_outputs_survive_a_crash_of_the_agent(master: SmallMaster, start: Start) -> None:
    master.blob_status = 503
    agent = start()
    run = run_of("sh", "-c", "echo result > x.csv", outputs=("*.csv",))
    await master.say(run)
    await until(lambda: "1.1.1" in agent.kept())
    await agent.crash()
    master.blob_status = 201
    again = start()
    (result,) = await master.results_of(run)
    assert [file.path for file in result.outputs] == ["x.csv"]
    assert result.phases
    assert result.phases.delivered_s > result.phases.ended_s, "collecting and uploading took some time"
    assert master.blobs[result.outputs[0].sha256] == b"result\n"
    await until(lambda: again.kept() == [])


async def test_one_failed_sample_does_not_stop_sampling(
    master: SmallMaster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    agent = start()
    await until(lambda: bool(master.reports))
    meter, failures = agent.agent.parts.meter, [OSError(errno.EMFILE, os.strerror(errno.EMFILE))] * 3
    sample = meter.sample

    def fail(own_s: float) -> None:
        if failures:
            raise failures.pop()
        sample(own_s)

    meter.sample = fail  # type: ignore[method-assign]
    await until(lambda: not failures)
    run = run_of("true")
    await master.say(run)
    (result,) = await master.results_of(run)
    assert result.outcome is Outcome.SUCCEEDED
    assert caplog.text.count("cannot check this computer just now: [Errno 24]") == 1


async def test_own_address_is_that_of_the_open_link(master: SmallMaster, start: Start) -> None:
    worker = start()
    await until(lambda: master.reports and worker.agent.is_linked)
    assert worker.agent.own_address == "127.0.0.1"
