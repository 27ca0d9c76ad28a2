import asyncio
import hashlib
from types import SimpleNamespace

import pytest

from loopline import AsyncClient, Client, http
from loopline.transfer import row_upload
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState, TaskId
from loopline_shared.rest.bodies import Explanation, FieldError, GridChange, Reason, Submission
from loopline_shared.spec import JobSpec
from tests.cli.fake_master import FakeMaster, hang_up, ok, page, refuse
from tests.cli.views import job, result, task

JOB = JobSpec(command=["true"])
SUBMITTED = Submission(id=7, task_count=1)


def client(fake: FakeMaster, patience_s: float = 60.0) -> AsyncClient:
    return AsyncClient(fake.url, "secret", patience_s=patience_s)


async def test_submission_is_repeated_with_one_key(fake: FakeMaster) -> None:
    fake.on("POST /jobs", hang_up(), refuse(503), ok(SUBMITTED, 201))
    async with client(fake) as master:
        assert await master.submit(JOB) == SUBMITTED
        assert await master.submit(JOB) == SUBMITTED
    keys = [seen.headers["Idempotency-Key"] for seen in fake.asked("POST /jobs")]
    assert len(keys) == 4
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]


async def test_short_job_needs_one_request(fake: FakeMaster) -> None:
    there = Submission(id=7, task_count=1, results=[result(1, "about 3.14\n")])
    fake.on("POST /jobs", ok(there, 201))
    async with client(fake) as master:
        assert await master.run(JOB) == there.results
    assert [seen.headers["Prefer"] for seen in fake.seen] == ["wait=1"]


async def test_results_of_a_longer_job_are_followed(fake: FakeMaster) -> None:
    fake.on("POST /jobs", ok(SUBMITTED, 201))
    fake.on("GET /jobs/7/results", ok(f"{result(1, 'about 3.14').model_dump_json()}\n".encode()))
    async with client(fake) as master:
        assert [one.id for one in await master.run(JOB)] == [TaskId(7, 1)]


async def test_typical_code_makes_only_necessary_requests(fake: FakeMaster) -> None:
    there = Submission(id=7, task_count=1, results=[result(1, "about 3.14\n")])
    fake.on("POST /jobs", ok(there, 201), ok(SUBMITTED, 201))
    fake.on("GET /jobs/7/results", ok(f"{result(1, 'about 3.14').model_dump_json()}\n".encode()))

    def ordinary() -> list[list[str]]:
        with Client(fake.url, "secret") as master:
            of_jobs = master.run(["true"]), master.submit(["true"], name="again").results()
            return [[one.stdout for one in results] for results in of_jobs]

    assert await asyncio.to_thread(ordinary) == [["about 3.14\n"], ["about 3.14"]]
    assert sorted(seen.what for seen in fake.seen) == ["GET /jobs/7/results", "POST /jobs", "POST /jobs"]


async def test_few_rows_are_sent_inline_and_many_are_uploaded_first(
    fake: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_upload, "MOST_INLINE", 2)
    content = b'{"a":1}\n{"a":2}\n{"a":3}\n'
    sha256 = hashlib.sha256(content).hexdigest()
    fake.on("POST /jobs", ok(SUBMITTED, 201))
    fake.on(f"HEAD /files/{sha256}", refuse(404), ok(b""))
    fake.on(f"PUT /files/{sha256}", ok(b"", 204))
    async with client(fake) as master:
        for count in (2, 3):
            assert await master.submit_rows(JOB, ({"a": n} for n in range(1, count + 1))) == SUBMITTED
        with pytest.raises(ValueError, match="there are no rows"):
            await master.submit_rows(JOB, [])
    few, many = [seen.body["parameters"] for seen in fake.asked("POST /jobs")]
    assert few == {"rows": [{"a": 1}, {"a": 2}]}
    assert many == {"file": f"sha256:{sha256}", "count": 3}
    assert [seen.body for seen in fake.asked(f"PUT /files/{sha256}")] == [content]


async def test_requests_carry_the_token(fake: FakeMaster) -> None:
    fake.on("GET /jobs/7", ok(job(7)))
    async with client(fake) as master:
        assert (await master.job(7)).state == JobState.SUCCEEDED
    assert fake.seen[0].headers["Authorization"] == "Bearer secret"


async def test_request_that_is_not_idempotent_is_not_repeated(fake: FakeMaster) -> None:
    fake.on("POST /tokens", hang_up())
    async with client(fake) as master:
        with pytest.raises(LooplineError) as raised:
            await master.create_token("ann", "user")
    assert raised.value.code == "unreachable"
    assert len(fake.seen) == 1


async def test_problem_is_raised_with_its_errors(fake: FakeMaster) -> None:
    mistake = FieldError(at="parameters.seed", message="is empty")
    fake.on("POST /jobs", refuse(422, "invalid", "the job is not valid", "mend it", errors=[mistake]))
    async with client(fake) as master:
        with pytest.raises(LooplineError) as raised:
            await master.submit(JOB)
    error = raised.value
    assert (error.code, error.status, error.hint) == ("invalid", 422, "mend it")
    assert error.message == "the job is not valid\n  parameters.seed: is empty"


@pytest.mark.parametrize("answer", [ok(b"<html>", 404), ok(b"<html>"), ok({"id": 7})])
async def test_unexpected_answer_is_an_error(fake: FakeMaster, answer: object) -> None:
    fake.on("GET /jobs/7", answer)  # type: ignore[arg-type]
    async with client(fake) as master:
        with pytest.raises(LooplineError) as raised:
            await master.job(7)
    assert raised.value.code == "unexpected_answer"
    assert raised.value.hint


async def test_busy_master_is_retried_until_patience_ends(fake: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request takes a second of the client's clock."""
    monkeypatch.setattr(http, "time", SimpleNamespace(monotonic=lambda: float(len(fake.seen))))
    fake.on("GET /passing", refuse(429, "too_many", "slow down"))
    async with client(fake, patience_s=3.5) as master:
        with pytest.raises(LooplineError) as raised:
            await master.passing()
    assert raised.value.code == "too_many"
    assert len(fake.seen) == 4


async def test_unreachable_master_is_an_error(closed_port: int) -> None:
    async with AsyncClient(f"127.0.0.1:{closed_port}", patience_s=0) as master:
        with pytest.raises(LooplineError) as raised:
            await master.create_token("ann", "user")
    assert raised.value.code == "unreachable"
    assert f"http://127.0.0.1:{closed_port}" in raised.value.message
    assert "loopline master" in raised.value.hint


async def test_standby_is_used_if_the_master_is_down_or_waiting(fake: FakeMaster, closed_port: int) -> None:
    """Each address is tried at least once, even with short patience; the one that answered is kept."""
    gone = f"http://127.0.0.1:{closed_port}"
    fake.on(
        "GET /passing",
        refuse(503, "database_away", "it waits"),
        ok({"order": "hold", "completions": 0, "passings": 0, "excused": {}, "latest": []}),
    )
    async with AsyncClient(f"{gone},{fake.url}", patience_s=0) as master:
        assert master.master == f"{gone},{fake.url}"
        with pytest.raises(LooplineError, match="it waits"):
            await master.passing()
        assert master.http.url == gone, "the other address is tried next"
        await master.passing()
        assert master.http.url == fake.url
        await master.passing()
        assert len(fake.seen) == 3


async def test_pages_are_read_to_the_last(fake: FakeMaster) -> None:
    fake.on("GET /jobs", page(job(3), job(2), following="c2"), page(job(1)))
    async with client(fake) as master:
        assert [view.id async for view in master.jobs()] == [3, 2, 1]
    assert [seen.query.get("cursor") for seen in fake.seen] == [None, "c2"]


async def test_output_resumes_after_a_lost_connection(fake: FakeMaster) -> None:
    fake.on("GET /jobs/7/tasks/1/stdout", hang_up(b"one "), hang_up(b"one two "), ok(b"one two three"))
    async with client(fake) as master:
        assert b"".join([piece async for piece in master.output(TaskId(7, 1))]) == b"one two three"


async def test_results_resume_after_a_lost_connection(fake: FakeMaster) -> None:
    lines = [result(n, f"{n}\n").model_dump_json().encode() + b"\n" for n in (1, 2, 3)]
    fake.on("GET /jobs/7/results", hang_up(lines[1] + lines[0][:20]), ok(lines[0] + b"\n" + lines[2]))
    async with client(fake) as master:
        assert [result.number async for result in master.results(7)] == [2, 1, 3]
    assert [seen.query.get("cursor") for seen in fake.seen] == [None, "2.0@2"]


async def test_names_in_addresses_are_quoted(fake: FakeMaster) -> None:
    async with client(fake) as master:
        with pytest.raises(LooplineError):
            await master.drain("a/b c", now=True)
    assert fake.seen[0].what == "POST /workers/a/b c/drain"  # one segment: the fake master shows it unquoted


async def test_plain_server_is_not_taken_for_an_absent_one(fake: FakeMaster) -> None:
    async with AsyncClient(fake.url.replace("http:", "https:"), patience_s=0.0) as master:
        with pytest.raises(LooplineError, match="but not by TLS") as refused:
            await master.job(7)
    assert fake.url in refused.value.hint


async def test_requests_can_run_concurrently(fake: FakeMaster) -> None:
    fake.on("GET /jobs/7/tasks", page(task(1)))
    async with client(fake) as master:
        await asyncio.gather(*(anext(master.tasks(7)) for _ in range(20)))


async def test_job_that_can_never_start_ends_waits_and_results(fake: FakeMaster) -> None:
    waiting = job(7, JobState.WAITING, finished_at=None, spec=JobSpec(command=["true"], after=[5]))
    fake.on("GET /jobs/7", ok(waiting))
    fake.on("GET /events", ok(f"data: {GridChange(missed=True).model_dump_json()}\n\n".encode()))
    detail = "can never start: job 5 has failed; retry that one, or cancel this one"
    lost = Reason(code="waits_in_vain", count=1, detail=detail, job=5)
    waits = Reason(code="waits", count=1, detail="waits for job 5 to succeed", job=5)
    explained = [
        Explanation(subject="7", state="waiting", sentence=one.detail, reasons=[one]) for one in (waits, lost)
    ]
    async with client(fake) as master:
        there = master.attach(7)
        for ends in (there.wait, there.results().__anext__):
            fake.on("GET /jobs/7/explain", *map(ok, explained))
            with pytest.raises(LooplineError, match="job 7 can never start: job 5 has failed") as ended:
                await asyncio.wait_for(ends(), 60)
            assert ended.value.hint == "`loopline retry 5`, or `loopline cancel 7`"
