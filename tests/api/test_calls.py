"""The link of a client that calls functions: each result of the jobs that it follows, exactly once."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import aiohttp
import pytest

from loopline_master import change_feed
from loopline_master.change_feed import Subscriptions
from loopline_master.core.scheduler import Scheduler
from loopline_master.http.live import client_link
from loopline_master.metrics import Metrics
from loopline_master.store import Store
from loopline_shared.job.parameters import Range
from loopline_shared.model import JobState, Outcome, Output, Result
from loopline_shared.protocol.client_link import (
    Drop,
    Ends,
    Follow,
    JobAccepted,
    Opened,
    Over,
    Refusal,
    Submit,
    decode_from_master,
    encode_to_master,
    key_of,
)
from loopline_shared.protocol.worker_link import Run
from loopline_shared.spec import JobSpec
from tests.api.bench import Bench, done

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Client:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.name = ""
        self._said = 0

    async def say(self, message: Submit | Follow | Drop) -> None:
        await self.socket.send_bytes(encode_to_master(message))

    async def submit(self, tasks: int = 1, again: str = "") -> int:
        self._said += 1
        await self.say(Submit(self._said, sweep(tasks), again))
        answer = await self.hear()
        assert isinstance(answer, JobAccepted), answer
        assert answer.number == self._said
        return answer.job

    async def hear(self) -> Any:
        async with asyncio.timeout(60):
            return decode_from_master(await self.socket.receive_bytes())

    async def results(self, job: int) -> tuple[list[Ends], Over]:
        """Receive results until the job is over."""
        found: list[Ends] = []
        while isinstance(message := await self.hear(), Ends):
            assert message.job == job
            found.append(message)
            if message.over:
                return found, Over(job, message.over)
        assert isinstance(message, Over), message
        return found, message

    async def numbers(self, job: int) -> list[int]:
        found, _ = await self.results(job)
        return [end.number for message in found for end in message.ends]


@asynccontextmanager
async def link(master: Bench, role: str = "user") -> AsyncIterator[Client]:
    async with master.http.ws_connect(master.address("/calls"), headers=master.headers(role)) as socket:
        client = Client(socket)
        opened = await client.hear()
        assert isinstance(opened, Opened)
        client.name = opened.link
        yield client


def sweep(tasks: int = 1) -> JobSpec:
    """A sweep of tasks too long to be prefetched, so that they end one by one."""
    return JobSpec(command=["work"], parameters={"i": Range(range=[1, tasks])}, size=1000.0)


def counting(master: Bench, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that collects the jobs whose results are read from disk."""
    asked, read = list[int](), master.parts[Store].results.ends

    async def ends(job: int, *arguments: Any) -> Any:
        asked.append(job)
        return await read(job, *arguments)

    monkeypatch.setattr(master.parts[Store].results, "ends", ends)
    return asked


async def test_results_are_sent_at_their_commit_without_reading_the_disk(
    shared_master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def does(run: Run) -> Result:
        value = Output(1, data=str(run.attempt.task).encode())
        if run.attempt.task == 2:
            return Result(run.attempt, Outcome.FAILED, exit_code=3, reason="of itself", value=value)
        return done(run, value=value)

    asked = counting(shared_master, monkeypatch)
    async with link(shared_master) as client, shared_master.worker(does=does):
        job = await client.submit(3)
        found, over = await client.results(job)
    ends = sorted((end for message in found for end in message.ends), key=lambda end: end.number)
    assert [(end.state.value, end.exit_code, end.reason) for end in ends] == [
        ("succeeded", 0, ""), ("failed", 3, "of itself"), ("succeeded", 0, ""),
    ]  # fmt: skip
    assert [(end.worker, end.value and end.value.data) for end in ends] == [("w1", b"1"), ("w1", b"2"), ("w1", b"3")]
    assert over == Over(job, JobState.FAILED)
    assert asked == []


async def test_following_from_a_cursor_returns_each_later_result_once(shared_master: Bench) -> None:
    async with link(shared_master) as client, shared_master.worker(slots=2):
        job = await client.submit(40)
        found, _ = await client.results(job)
        assert len(found) > 3
        for place in (0, len(found) // 2, len(found) - 1):
            await client.say(Follow(job, found[place].cursor))
            later = [end.number for message in found[place + 1 :] for end in message.ends]
            assert await client.numbers(job) == later
        await client.say(Follow(job))
        assert sorted(await client.numbers(job)) == list(range(1, 41))


async def test_slow_client_gets_the_remaining_results_from_disk(
    shared_master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_link, "MOST_QUEUED_BYTES", 1)
    monkeypatch.setattr(client_link, "PART", 7)
    asked = counting(shared_master, monkeypatch)
    async with link(shared_master) as client, shared_master.worker():
        job = await client.submit(60)
        numbers = await client.numbers(job)
    assert asked
    assert sorted(numbers) == list(range(1, 61))
    assert len(set(numbers)) == 60


async def _read_in_bits(master: Bench, job: int, chance: Random) -> list[int]:
    """Follow the job over links that break repeatedly, sometimes reading slowly."""
    numbers, cursor = list[int](), ""
    while True:
        async with link(master, "reader") as client:
            await client.say(Follow(job, cursor))
            for _ in range(chance.choice([1, 2, 5, 1000])):
                message = await client.hear()
                if isinstance(message, Over):
                    return numbers
                numbers += [end.number for end in message.ends]
                cursor = message.cursor
                if message.over:
                    return numbers
                await asyncio.sleep(chance.choice([0, 0, 0, 0.005]))


@pytest.mark.parametrize("seed", range(4))
async def test_each_result_is_sent_once_over_broken_and_slow_links(
    shared_master: Bench, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = Random(seed)
    monkeypatch.setattr(client_link, "MOST_QUEUED_BYTES", chance.choice([1, 500, client_link.MOST_QUEUED_BYTES]))
    monkeypatch.setattr(client_link, "PART", chance.choice([3, 17, client_link.PART]))
    async with link(shared_master) as client:
        job = await client.submit(200)
        readers = [_read_in_bits(shared_master, job, Random(chance.random())) for _ in range(5)]
        async with shared_master.worker(slots=3):
            found = await asyncio.gather(client.numbers(job), *readers)
    assert all(sorted(numbers) == list(range(1, 201)) for numbers in found)


async def test_one_of_several_followers_can_stop(shared_master: Bench) -> None:
    async with link(shared_master) as client, link(shared_master, "reader") as other, link(shared_master) as third:
        job = await client.submit(5)
        for one in (other, third):
            await one.say(Follow(job))
        await third.say(Drop(job))
        async with shared_master.worker():
            assert sorted(await client.numbers(job)) == sorted(await other.numbers(job)) == [1, 2, 3, 4, 5]
        again = await third.submit()
        assert again != job, "it received nothing of the other job"


async def test_cancelled_job_ends_without_results(shared_master: Bench) -> None:
    async with link(shared_master) as client:
        job = await client.submit(3)
        await shared_master.ask("POST", f"/jobs/{job}/cancel")
        assert await client.results(job) == ([], Over(job, JobState.CANCELLED))
        await client.say(Follow(job))
        assert await client.results(job) == ([], Over(job, JobState.CANCELLED))


async def test_job_that_ended_while_the_link_was_down_is_reported_as_over(shared_master: Bench) -> None:
    async with link(shared_master) as lost:
        job, key = await lost.submit(), key_of(lost.name, 1)

    def does(run: Run) -> Result | None:
        return None if run.attempt.job == job else done(run)

    async with shared_master.worker(does=does), asyncio.timeout(60):
        while (await shared_master.get(f"/jobs/{job}"))["state"] != "running":
            await asyncio.sleep(0.01)
    await shared_master.ask("POST", f"/jobs/{job}/cancel")
    assert job in shared_master.parts[Scheduler].state.jobs, (
        "its worker is disconnected, and may still run the attempt"
    )
    async with link(shared_master) as client:
        assert await client.submit(again=key) == job
        assert await client.results(job) == ([], Over(job, JobState.CANCELLED))


async def test_submission_repeated_on_another_link_is_the_same_job(shared_master: Bench) -> None:
    async with link(shared_master) as first:
        job = await first.submit(2)
        key = key_of(first.name, 1)
    async with link(shared_master) as second:
        assert await second.submit(2, again=key) == job
        assert await second.submit(2) != job
        await second.say(Submit(3, sweep(3), again=key))
        refusal = await second.hear()
        assert (refusal.number, refusal.status, refusal.code) == (3, 409, "key_used")


async def test_submission_repeated_before_the_original_arrives_is_one_job(shared_master: Bench) -> None:
    async with link(shared_master) as lost, link(shared_master) as other:
        job = await other.submit(again=key_of(lost.name, 1))
        assert await lost.submit() == job
        headers = {"Idempotency-Key": key_of(other.name, 2)}
        body = sweep().model_dump(mode="json", exclude_unset=True)
        answer = await shared_master.ask("POST", "/jobs", "user", json=body, headers=headers)
        assert answer.status == 201
        assert await other.submit() == answer.body["id"], "a REST client may use such a key without harm"


async def test_audit_log_has_jobs_submitted_over_a_link(shared_master: Bench) -> None:
    async with link(shared_master) as client:
        jobs = [await client.submit(), await client.submit()]
    found = (await shared_master.get("/audit-log?who=the-user"))["items"][:2]
    assert [(one["did"], one["on"], one["address"]) for one in reversed(found)] == [
        ("submit_job", str(job), "127.0.0.1") for job in jobs
    ]


async def test_invalid_submission_is_refused_and_the_link_stays_open(shared_master: Bench) -> None:
    async with link(shared_master) as client, link(shared_master, "reader") as reader:
        await client.socket.send_str('{"kind": "submit", "number": 1, "job": {"command": []}}')
        refusal = await client.hear()
        assert isinstance(refusal, Refusal)
        assert (refusal.number, refusal.status, refusal.code) == (1, 422, "invalid")
        assert any("command" in mistake.at for mistake in refusal.errors)
        client._said = 1
        assert await client.submit() > 0
        await reader.say(Submit(1, sweep()))
        assert (await reader.hear()).status == 403
        await reader.say(Follow(12345))
        assert await reader.hear() == Over(12345, None)


async def test_client_that_reads_no_answers_is_not_read_further(
    shared_master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, links = asyncio.Event(), list[Any]()

    async def send_nothing(link: Any) -> None:
        links.append(link)
        await held.wait()
        await send_all(link)

    send_all = client_link._ClientLink._send_all
    monkeypatch.setattr(client_link._ClientLink, "_send_all", send_nothing)
    async with shared_master.http.ws_connect(
        shared_master.address("/calls"), headers=shared_master.headers("user")
    ) as socket:
        for number in range(1, 301):
            await socket.send_str(f'{{"kind": "submit", "number": {number}, "job": {{"command": []}}}}')
        async with asyncio.timeout(60):
            while not (links and len(links[0]._outgoing) > client_link.MOST_SUBMISSIONS):
                await asyncio.sleep(0.01)
        await shared_master.get("/jobs")
        assert len(links[0]._outgoing) == 1 + client_link.MOST_SUBMISSIONS, (
            "submissions beyond the limit are not read yet"
        )
        held.set()
        client = Client(socket)
        assert isinstance(await client.hear(), Opened)
        assert [(await client.hear()).number for _ in range(300)] == list(range(1, 301)), (
            "reading resumes once answers are sent"
        )


async def test_patient_submission_is_answered_with_its_first_results(
    shared_master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_link, "ANSWER_WITHIN_S", 3600.0)
    async with link(shared_master) as client, shared_master.worker():
        for number in (1, 2):
            await client.say(Submit(number, sweep(2), is_patient=True))
            first = await client.hear()
            assert isinstance(first, Ends), first
            assert first.accepted == number
            rest = [first] if first.over else [first, *(await client.results(first.job))[0]]
            assert [message.accepted for message in rest[1:]] == [0] * (len(rest) - 1)
            assert sorted(end.number for message in rest for end in message.ends) == [1, 2]


async def test_patient_submission_is_answered_in_time_without_results(
    shared_master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_link, "ANSWER_WITHIN_S", 0.0)
    async with link(shared_master) as client:
        await client.say(Submit(1, sweep(), is_patient=True))
        answer = await client.hear()
        assert isinstance(answer, JobAccepted)
        assert answer.number == 1
        async with shared_master.worker():
            found, _ = await client.results(answer.job)
    assert [message.accepted for message in found] == [0]


async def test_patient_submission_is_answered_before_later_messages(
    shared_master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the answer to a later submission, and before the end of a job without results."""
    monkeypatch.setattr(client_link, "ANSWER_WITHIN_S", 3600.0)
    async with link(shared_master) as client:
        await client.say(Submit(1, sweep(), is_patient=True))
        await client.say(Submit(2, sweep()))
        answers = [await client.hear(), await client.hear()]
        assert [answer.number for answer in answers] == [1, 2]
        await client.say(Submit(3, sweep(), is_patient=True))
        async with asyncio.timeout(60):
            while (job := (await shared_master.get("/jobs?limit=1"))["items"][0]["id"]) == answers[1].job:
                pass  # job 3 is not committed yet
        assert (await shared_master.ask("POST", f"/jobs/{job}/cancel")).status == 200
        assert await client.hear() == JobAccepted(3, job)
        assert await client.hear() == Over(job, JobState.CANCELLED)


async def test_key_repeated_during_its_commit_is_one_job(
    shared_master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, held, may_commit = shared_master.parts[Store], asyncio.Event(), asyncio.Event()
    commit = store.commit

    async def commit_late(*arguments: Any) -> None:
        held.set()
        await may_commit.wait()
        await commit(*arguments)

    async with link(shared_master) as first, link(shared_master) as second:
        monkeypatch.setattr(store, "commit", commit_late)
        await first.say(Submit(1, sweep()))
        await held.wait()
        await second.say(Submit(1, sweep(), again=key_of(first.name, 1)))
        await second.say(Follow(12345))
        assert await second.hear() == Over(12345, None), "the repeated submission has been read"
        may_commit.set()
        assert (await second.hear()).job == (await first.hear()).job


@pytest.mark.parametrize(
    "frame", ["[]", '{"kind": "follow", "job": 0}', encode_to_master(Submit(2, sweep())).decode()]
)
async def test_invalid_frame_closes_the_link(shared_master: Bench, frame: str) -> None:
    async with link(shared_master) as client:
        await client.socket.send_str(frame)
        message = await client.socket.receive(60)
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert message.data == aiohttp.WSCloseCode.PROTOCOL_ERROR
    assert not shared_master.parts[Subscriptions]._of_job


async def test_job_outlives_the_link_of_its_client(shared_master: Bench) -> None:
    async with link(shared_master) as client:
        job = await client.submit(3)
        assert shared_master.parts[Subscriptions]._of_job
    async with asyncio.timeout(60):
        while shared_master.parts[Subscriptions]._of_job:
            await asyncio.sleep(0.01)
    async with shared_master.worker(), link(shared_master) as later:
        await later.say(Follow(job))
        assert sorted(await later.numbers(job)) == [1, 2, 3]


async def test_repeated_calls_do_not_leak_objects(shared_master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "MAX_NAMED", 50)
    calls, found = 100, list[Counter[type]]()
    for _ in range(1000):
        shared_master.parts[Metrics].latest.add(0.0, 0.0, 0)  # a cache of the latest thousand
    async with link(shared_master) as client, shared_master.worker():
        for _ in range(3):
            for _ in range(calls):
                await client.results(await client.submit())
            gc.collect()
            ours = (type(each) for each in gc.get_objects() if str(type(each).__module__).startswith("loopline"))
            found.append(Counter(ours))  # other tests leave objects of the libraries behind
    grown = {kind.__name__: count for kind, count in (found[2] - found[1]).items() if count >= calls // 2}
    assert grown == {}
