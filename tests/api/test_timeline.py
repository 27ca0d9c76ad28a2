"""Data for the charts: time windows in columns, samples per minute, the queue."""

from __future__ import annotations

import json
from collections import namedtuple
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json

from loopline_master.dashboard.trace import Tracing, trace
from loopline_master.engine import Clock
from loopline_master.store.queries.timeline_queries import Bar, Window
from loopline_shared.model import AttemptId, Held, Outcome, Phases, Result
from loopline_shared.protocol.worker_link import Run
from loopline_shared.rest.columns import Samples, SweepColumns, Timeline, Trace
from loopline_shared.rest.times import seconds
from tests.api.bench import Bench, done, running_master, until


def fails_second(run: Run) -> Result:
    return done(run) if run.attempt.task != 2 else Result(run.attempt, Outcome.FAILED, exit_code=3)


async def ended(master: Bench, job: int) -> None:
    async def is_over() -> bool:
        return (await master.get(f"/jobs/{job}"))["finished_at"] is not None

    await until(is_over)


async def test_columns_match_the_list_of_attempts(master: Bench) -> None:
    async def offer_all() -> bool:
        return sum(worker["slots"] for worker in (await master.get("/workers"))["items"]) == 3

    async with master.worker("w2", slots=2, does=fails_second), master.worker("w1", slots=1, does=fails_second):
        await until(offer_all)
        job = await master.submit(name="sweep", parameters={"i": {"range": [1, 3]}}, max_attempts=2)
        await ended(master, job)
    waiting = await master.submit(name="later", max_attempts=1)
    answer = await master.ask("GET", "/timeline?since=0", "reader")
    timeline = Timeline.model_validate_json(answer.content)
    attempts = {one["id"]: one for one in (await master.get("/attempts"))["items"]}
    bars = timeline.bars
    assert sorted(map(str, bars.attempt)) == sorted(attempts)
    assert timeline.workers == ["w1", "w2"]
    assert [(one.id, one.name) for one in timeline.jobs] == [(job, "sweep")]
    assert bars.dispatched == sorted(bars.dispatched)
    for place, id_ in enumerate(map(str, bars.attempt)):
        attempt = attempts[id_]
        assert timeline.workers[bars.worker[place]] == attempt["worker"]
        assert timeline.jobs[bars.job[place]].id == job
        assert (bars.state[place], bars.frozen[place]) == (attempt["state"], None)
        assert (bars.replica[place], bars.accepted[place]) == (int(attempt["replica"]), int(attempt["accepted"]))
        assert bars.ran[place] == (round(attempt["wall_s"], 3) or None)
        times = (bars.dispatched[place], bars.start[place], bars.end[place])
        assert times == tuple(
            pytest.approx(seconds(attempt[f"{what}_at"]), abs=0.001) for what in ("dispatched", "started", "ended")
        )
    assert len({len(column) for column in bars.model_dump().values()}) == 1
    assert waiting not in [one.id for one in timeline.jobs]


async def test_window_can_be_limited_to_a_job_worker_or_time(master: Bench) -> None:
    jobs = [await master.submit(parameters={"i": {"range": [1, 3]}}) for _ in range(2)]
    async with master.worker("w1", slots=1):
        for job in jobs:
            await ended(master, job)

    async def seen(query: str) -> list[str]:
        return list((await master.get(f"/timeline?{query}"))["bars"]["attempt"])

    assert {attempt.partition(".")[0] for attempt in await seen(f"job={jobs[1]}")} == {str(jobs[1])}
    assert len(await seen("worker=w1")) == 6
    assert await seen("worker=w9") == await seen("since=1&until=2") == await seen("job=99") == []
    latest = await master.get("/timeline?limit=2")
    assert (latest["truncated"], len(latest["bars"]["job"])) == (True, 2)
    assert latest["bars"]["attempt"] == (await seen("limit=50000"))[-2:]


async def test_timeline_shows_when_a_last_task_was_held(tmp_path: Path) -> None:
    async with running_master(tmp_path, single_task_order="hold") as master:
        first = await master.submit(size=5, requires={"labels": ["nowhere"]})
        held = await master.submit(size=5)
        answer = Timeline.model_validate_json((await master.ask("GET", "/timeline")).content)
        assert [(one.job, one.until) for one in answer.held] == [(held, None)]
        assert [one.id for one in answer.jobs] == [held]
        assert await master.get("/queue", "reader") == [
            {"id": first, "held_by": None, "waiting_for": []},
            {"id": held, "held_by": first, "waiting_for": []},
        ]
        (demand,) = (await master.get("/demand", "reader"))["demands"]
        assert (demand["labels"], demand["tasks"], demand["workers"]) == (["nowhere"], 1, 0)
        reasons = (await master.get(f"/jobs/{held}/explain"))["reasons"]
        assert [reason["job"] for reason in reasons if reason["code"] == "held"] == [first]
        await master.ask("POST", f"/jobs/{first}/cancel")
        async with master.worker():
            await ended(master, held)
        after = Timeline.model_validate_json((await master.ask("GET", "/timeline")).content)
        assert after.held[0].until is not None
        assert after.held[0].until >= after.held[0].since
        assert await master.get("/queue") == []


async def test_freeze_is_a_band_in_the_bar_of_its_attempt(master: Bench) -> None:
    job = await master.submit()

    async def bar() -> Any:
        timeline = Timeline.model_validate_json((await master.ask("GET", f"/timeline?job={job}")).content)
        return timeline.bars.frozen

    async with master.worker(does=lambda run: None) as worker:
        for frozen in (True, False):
            await until(lambda: _is_running(master, job))
            _, frame = worker.session.report([Held(AttemptId(job, 1, 1), frozen=frozen)], (), worker.load)
            await worker.socket.send_bytes(frame)

            async def has_changed(frozen: bool = frozen) -> bool:
                (bands,) = await bar()
                return bool(bands) and (bands[0][1] is None) == frozen

            await until(has_changed)
        ((since, end),) = (await bar())[0]
        assert since <= end
        trace = Trace.model_validate_json((await master.ask("GET", f"/jobs/{job}/trace")).content)
        (band,) = [event for event in trace.traceEvents if event.cat == "frozen"]
        (whole,) = [event for event in trace.traceEvents if event.cat == "attempt"]
        assert (band.pid, band.tid) == (whole.pid, whole.tid)
        assert whole.ts <= band.ts <= band.ts + band.dur <= whole.ts + whole.dur


async def test_bar_ends_when_its_slot_became_free_before_delivery(
    master: Bench,
) -> None:
    def does(run: Run) -> Result:
        """Report an end 40 s after the slot was taken; the program began after 4 s of them."""
        phases = Phases(3.0, 4.0, 40.0)
        master.pass_time(40.0 if run.attempt.task == 1 else 0.0)
        return done(run, wall_s=36.0, slot=2, phases=phases) if run.attempt.task == 1 else done(run, slot=2)

    job = await master.submit(parameters={"i": {"range": [1, 2]}})
    async with master.worker("w1", slots=1, does=does):
        await ended(master, job)
    until_s = master.parts[Clock]()  # ahead of the wall clock
    bars = Timeline.model_validate_json((await master.ask("GET", f"/timeline?until={until_s}")).content).bars
    first, second = (bars.attempt.index(AttemptId(job, task, 1)) for task in (1, 2))
    assert (bars.slot, bars.began[first], bars.began[second]) == ([2, 2], 4.0, None)
    assert bars.dispatched[first] <= bars.start[first] <= bars.dispatched[first] + 30.0, (
        "40 s before its result arrived"
    )
    assert bars.end[first] is not None
    assert bars.ended[first] is not None
    assert bars.end[first] <= bars.ended[first]
    assert bars.end[first] <= bars.start[second]
    one, _ = (await master.get("/attempts"))["items"]
    assert (one["slot"], one["phases"]) == (2, {"inputs_s": 3.0, "began_s": 4.0, "ended_s": 40.0})
    trace = Trace.model_validate_json((await master.ask("GET", f"/jobs/{job}/trace")).content)
    assert {event.tid for event in trace.traceEvents if event.ph == "X"} == {2}
    assert [event.name for event in trace.traceEvents if event.cat == "phase"] == ["fetch", "run"]


async def test_timeline_is_compressed_if_the_client_accepts_it(master: Bench) -> None:
    job = await master.submit(parameters={"i": {"range": [1, 40]}})
    async with master.worker("w1"):
        await ended(master, job)
    plain = await master.ask("GET", "/timeline", headers={"Accept-Encoding": "identity"})
    zipped = await master.ask("GET", "/timeline", headers={"Accept-Encoding": "gzip, br"})
    assert ("Content-Encoding" in plain.headers, zipped.headers["Content-Encoding"]) == (False, "gzip")
    assert plain.headers["Vary"] == "Accept-Encoding"
    assert plain.body["bars"] == zipped.body["bars"]


async def test_trace_is_in_the_format_of_perfetto(master: Bench) -> None:
    job = await master.submit(name="sweep", parameters={"i": {"range": [1, 5]}})
    async with master.worker("w1", slots=2, does=lambda run: done(run, wall_s=1e-9)):
        await ended(master, job)
    for path in (f"/jobs/{job}/trace", "/timeline/trace"):
        answer = await master.ask("GET", path, "reader")
        assert answer.headers["Content-Disposition"].startswith("attachment")
        trace = Trace.model_validate_json(answer.content)
        names = {event.pid: event.args["name"] for event in trace.traceEvents if event.ph == "M"}
        bars = [event for event in trace.traceEvents if event.cat == "attempt"]
        assert names == {1: "w1"}
        assert sorted(event.name for event in bars) == [f"{job}.{task}.1" for task in range(1, 6)]
        assert {event.tid for event in bars} <= {1, 2}, "one thread per slot"
        assert {event.args["job"] for event in bars} == {"sweep"}
        assert min(event.ts for event in bars) == 0
        _nobody_is_in_two_bars_at_once(bars)
    assert (await master.ask("GET", "/jobs/99/trace")).status == 404


async def test_trace_of_a_job_is_streamed_and_covers_its_time(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopline_master.http.routes.timeline._TRACED_AT_ONCE", 2)

    def does(run: Run) -> Result:
        """Report slot and phases for some attempts only."""
        number = run.attempt.task
        return done(run, slot=1 + number % 2, phases=Phases(0.0, 0.1, 5.0)) if number < 6 else done(run)

    job = await master.submit(parameters={"i": {"range": [1, 9]}})
    async with master.worker("w2", slots=2, does=does), master.worker("w1", slots=1, does=fails_second):
        await ended(master, job)
        await until(lambda: _all_have_ended(master, job))  # including replicas
    zipped, plain = [
        await master.ask("GET", f"/jobs/{job}/trace", headers={"Accept-Encoding": coding})
        for coding in ("gzip", "identity")
    ]
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert zipped.content == plain.content
    of_its_time = Trace.model_validate_json((await master.ask("GET", f"/timeline/trace?job={job}")).content)
    trace = Trace.model_validate_json(plain.content)
    assert len(trace.traceEvents) > 9
    assert sorted(trace.traceEvents, key=repr) == sorted(of_its_time.traceEvents, key=repr)
    waiting = await master.submit(requires={"labels": ["nowhere"]})
    assert (await master.get(f"/jobs/{waiting}/trace"))["traceEvents"] == []
    monkeypatch.setattr("loopline_master.http.routes.timeline.MAX_BARS", 3)
    latest = Trace.model_validate(await master.get(f"/jobs/{job}/trace")).traceEvents
    assert 0 < len([event for event in latest if event.cat in ("attempt", "replica")]) <= 3


def test_traced_attempt_ends_where_the_next_in_its_slot_begins() -> None:
    bars = [
        Bar(1, task, 1, "ant", "succeeded", 0, 1, begin, begin, begin + 9.0, 9.0, "[]", 1, None)
        for task, begin in ((1, 10.0), (2, 15.0))
    ]
    tracing = Tracing({"ant"}, {1: "work"}, 10.0, 99.0)
    events = [json.loads(one) for one in (*tracing.add(bars[:1]), *tracing.add(bars[1:]), *tracing.end([]))]
    assert [(event["name"], event["ts"], event["dur"]) for event in events] == [
        ("1.1.1", 0, 5_000_000),
        ("1.2.1", 5_000_000, 9_000_000),
    ]


def test_streamed_trace_equals_its_json() -> None:
    """With any names; frozen, lost and running attempts, replicas, and attempts without a reported slot."""
    odd = 'a "job" of \\ \x07 \x7f\u2028 \u00fc \U0001f600'
    phases = '{"inputs_s": 0.25, "began_s": 1.5, "ended_s": 7.0}'
    shared, Hold = (odd, "lost", 0, 0, 10.0, 10.0), namedtuple("Hold", "job since until")
    bars = [
        Bar(1, 1, 1, *shared, None, 0.0, "[]", 0, None),
        Bar(1, 2, 1, *shared, None, 0.0, "[[11.0, 12.5], [13.0, null]]", 0, phases),
        Bar(1, 3, 2, odd, "finished", 1, 1, 10.0, 10.0, 18.0001, 7.0, "[[null, 11.0]]", 2, phases),
        Bar(1, 3, 3, odd, "retracting", 1, 0, 12.0, 12.0, 19.0, 7.0, "[]", 2, phases),
        Bar(1, 4, 1, odd, "prefetched", 0, 0, 12.0, None, None, 0.0, "[]", 0, None),
    ]
    written = trace(Window(0.0, 99.0, bars, [Hold(1, 5.0, None)], {1: odd}, truncated=False), 30.0)
    events = json.loads(written)["traceEvents"]
    assert to_json(json.loads(written)) == written
    assert {event["args"]["job"] for event in events if event.get("cat") in ("attempt", "replica")} == {odd}
    assert [(event["name"], event["args"]) for event in events if event.get("cat") == "replica"] == [
        ("1.3.2", {"job": odd, "state": "finished", "replica": True, "accepted": True, "upload_s": 6.0}),
        ("1.3.3", {"job": odd, "state": "retracting", "replica": True, "accepted": False, "upload_s": 0.0}),
    ]


async def test_samples_of_one_worker_and_of_all_workers(master: Bench) -> None:
    async with master.worker("w1", slots=3), master.worker("w2", slots=4):
        await until(lambda: _has_samples(master, "w1"))
        await until(lambda: _has_samples(master, "w2"))
        one = Samples.model_validate(await master.get("/workers/w1/samples", "reader"))
        both = Samples.model_validate(await master.get("/samples", "reader"))
    assert one.slots[0] == 3
    assert len(one.at) == len(one.spare_cpu) == len(one.in_use)
    assert sum(both.slots) == pytest.approx(7 if len(both.at) == 1 else sum(both.slots))
    assert await master.get("/samples?since=1&until=2") == {**_empty(), "every_s": 60.0}
    assert (await master.get("/samples?since=0&until=864000&points=10"))["every_s"] == 86400
    assert (await master.ask("GET", "/workers/nobody/samples")).status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/timeline?limit=100001", "/timeline?limit=0", "/timeline?since=-1", "/timeline?since=nan", "/timeline?job=0",
        "/timeline?worker=%20", "/samples?points=5001", "/samples?until=inf", "/timeline/trace?limit=x",
    ],
)  # fmt: skip
@pytest.mark.asyncio(loop_scope="module")
async def test_parameters_out_of_bounds_are_refused(shared_master: Bench, path: str) -> None:
    answer = await shared_master.ask("GET", path)
    assert (answer.status, answer.body["code"]) == (422, "invalid")
    assert answer.body["errors"][0]["at"].startswith("parameters.")


@pytest.mark.parametrize("path", ["/timeline?since=1e300", "/timeline?until=1e300&since=5", "/samples?until=1e300"])
@pytest.mark.asyncio(loop_scope="module")
async def test_the_far_future_is_empty(shared_master: Bench, path: str) -> None:
    assert (await shared_master.ask("GET", path)).status == 200


async def _all_have_ended(master: Bench, job: int) -> bool:
    attempts = (await master.get(f"/jobs/{job}/attempts"))["items"]
    return all(attempt["ended_at"] for attempt in attempts)


async def _is_running(master: Bench, job: int) -> bool:
    """Return whether its worker has reported it running."""
    attempts = (await master.get(f"/jobs/{job}/attempts"))["items"]
    return any(attempt["state"] in ("running", "frozen") for attempt in attempts)


def _nobody_is_in_two_bars_at_once(bars: list[Any]) -> None:
    for lane in {event.tid for event in bars}:
        ordered = sorted((event for event in bars if event.tid == lane), key=lambda event: event.ts)
        for one, after in pairwise(ordered):
            assert one.ts + one.dur <= after.ts + 1, json.dumps([one.name, after.name])


def _empty() -> dict[str, list[float]]:
    return {name: [] for name in Samples.model_fields if name != "every_s"}


async def _has_samples(master: Bench, worker: str) -> bool:
    return bool((await master.get(f"/workers/{worker}/samples"))["at"])


async def test_sweep_columns_match_the_list_of_tasks(master: Bench) -> None:
    def does(run: Run) -> Result:
        return done(run, metrics={"loss": 0.5}) if run.attempt.task == 1 else fails_second(run)

    parameters = {"lr": [0.1, 0.2], "mode": ["a"]}
    async with master.worker("w1", does=does):
        job = await master.submit(parameters=parameters, max_attempts=1, max_fails=1)
        await ended(master, job)
    columns = SweepColumns.model_validate_json((await master.ask("GET", f"/jobs/{job}/sweep", "reader")).content)
    tasks = (await master.get(f"/jobs/{job}/tasks?parameters=true"))["items"]
    assert [state.value for state in columns.state] == [task["state"] for task in tasks] == ["succeeded", "failed"]
    assert columns.parameters == {"lr": [0.1, 0.2], "mode": ["a", "a"]}
    assert columns.metrics == {"loss": [0.5, None]}
    for name in ("number", "worker", "exit_code", "failures", "reason"):
        assert getattr(columns, name) == [task[name] for task in tasks], name
    assert columns.wall_s == pytest.approx([task["wall_s"] for task in tasks], abs=0.001)
    waiting = await master.submit(parameters=parameters)
    columns = SweepColumns.model_validate(await master.get(f"/jobs/{waiting}/sweep"))
    assert (columns.number, columns.state, columns.worker) == ([1, 2], ["queued"] * 2, [None] * 2)
