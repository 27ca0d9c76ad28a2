"""Every job starts under endless streams of others: gangs, wide and narrow tasks, with limits and resources."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.policies import REGISTRY
from loopline_shared.model import AttemptId, Order
from tests.campaign import PATIENT, tried
from tests.scheduling.test_gang_units import all_report, grid
from tests.scheduling.units import limit, offering, running, submit

POLICIES = sorted(REGISTRY)
RUN_S, TURN_S = 10.0, 2.5
M, N, FPGA, BOTH = {"m": 1}, {"n": 1}, {"fpga": 1}, {"m": 1, "n": 1}
EXCLUSIVE = {"exclusive": True}


def seconds_until_start(
    watched: dict[str, Any],
    stream: list[dict[str, Any]],
    policy: str = "first-come",
    order: Order = Order.NONE,
    workers: int = 8,
    slots: int = 2,
    limits: int = 4,
    within_s: float = 400.0,
    *,
    shares: bool = False,
) -> float:
    """Return the time until the watched job starts, which arrives after ``ahead`` jobs of each kind of the stream.

    Tasks run for 10 s, or as long as ``lasts`` of their kind says, and have a limit of 20 s. As soon as a job of the
    stream starts, another one arrives. The workers beyond the first eight take no members of gangs.
    """
    made = grid(*map(str, range(min(workers, 8))), slots=slots, order=order, policy=policy, shares=shares, fpga=1)
    for number in range(8, workers):
        made.join(str(number), replace(offering(slots, fpga=1), fences=True))
    for name in ("m", "n"):
        limit(made, name, limits)
    begun, kinds, ahead, lasts = dict[AttemptId, float](), count(), max(2, 6 // len(stream)), dict[int, float]()

    def submitted(kind: dict[str, Any]) -> int:
        run_s = kind.get("lasts", RUN_S)
        spec = {"timeout_s": 20, "size": run_s * kind.get("nodes", 1), **kind}
        lasts[number := submit(made, **{name: spec[name] for name in spec.keys() - {"lasts"}})] = run_s
        return number

    waiting = {submitted(stream[next(kinds) % len(stream)]) for _ in range(ahead * len(stream))}
    job, since = submitted(watched), made.now
    while made.now < since + within_s:
        all_report(made, 1)
        made.now += TURN_S
        for attempt in running(made):
            if made.now - begun.setdefault(attempt, made.now) >= lasts[attempt.job]:
                made.end(attempt)
        started = {attempt.job for attempt in (*begun, *running(made))}
        if job in started:
            return made.now - since
        waiting -= started
        while len(waiting) < ahead * len(stream):
            waiting.add(submitted(stream[next(kinds) % len(stream)]))
    raise AssertionError(f"job {job} has not started within {within_s:.0f} s: {made.job(job)}")


def gangs(nodes: int, needs: dict[str, int], owner: str = "bob", **more: Any) -> dict[str, Any]:
    return {"nodes": nodes, "needs": needs, "owner": owner, **more}


def single(needs: dict[str, int], owner: str = "bob", **more: Any) -> dict[str, Any]:
    return {"needs": needs, "owner": owner, **more}


@pytest.mark.parametrize(
    ("watched", "stream"),
    [
        (gangs(4, M), [gangs(3, M)]),
        (gangs(4, M, "ann"), [gangs(3, M)]),
        (gangs(4, BOTH), [gangs(3, M), gangs(3, N, "cat")]),
        (single({"m": 4, "n": 4}), [gangs(3, M), gangs(3, N, "cat")]),
        (
            single({"m": 4, "n": 4}, "ann"),
            [single({"m": 3}), single({"n": 3}, "cat"), single(M, "dan"), single(N, "eve")],
        ),
        (gangs(6, FPGA), [gangs(3, FPGA)]),
        (gangs(4, M, requires=EXCLUSIVE), [gangs(3, M), gangs(3, {}, "cat")]),
        (gangs(4, {**M, **FPGA}), [gangs(3, M), gangs(3, FPGA, "cat")]),
        (gangs(4, BOTH), [single({"m": 3}), single({"n": 3}, "cat"), single(M, "dan"), single(N, "eve")]),
    ],
    ids=str,
)
def test_job_starts_under_an_endless_stream(watched: dict[str, Any], stream: list[dict[str, Any]]) -> None:
    assert seconds_until_start(watched, stream) <= 120.0


def test_gang_starts_on_few_slots_that_wide_and_narrow_tasks_take() -> None:
    stream = [single({"m": 3}), single(M, "cat"), single({}, "dan"), single({}, "dan")]
    assert seconds_until_start(gangs(4, M), stream, workers=4, slots=1) <= 120.0


@pytest.mark.parametrize("order", [Order.NONE, Order.DELIVER])
@pytest.mark.parametrize("policy", ["round-robin", "fair"])
def test_gang_has_its_turn_although_wide_and_narrow_tasks_start_in_one_step(policy: str, order: Order) -> None:
    stream = [single(N, "ann"), single({"m": 3}, requires={"slots": 2}), single(BOTH, "cat")]
    assert seconds_until_start(gangs(2, {**M, **FPGA}, "ann"), stream, policy, order) <= 120.0


@pytest.mark.parametrize(
    "stream", [gangs(2, {}, requires={"slots": 2}), gangs(4, {}), gangs(8, {}, timeout_s=None)], ids=str
)
@pytest.mark.parametrize("policy", POLICIES)
def test_task_of_another_user_starts_although_gangs_fill_all_slots(policy: str, stream: dict[str, Any]) -> None:
    assert seconds_until_start(single({}, "ann"), [stream], policy, shares=True) <= 120.0


@pytest.mark.parametrize("policy", POLICIES)
def test_gang_starts_although_tasks_of_other_users_fill_all_slots(policy: str) -> None:
    stream = [single({}, "bob"), single({}, "cat"), single({}, "dan"), single({}, "bob", requires={"slots": 2})]
    assert seconds_until_start(gangs(6, {}, "ann"), stream, policy, shares=True) <= 120.0


@pytest.mark.parametrize("policy", POLICIES)
def test_wide_task_starts_although_slots_limit_and_resource_are_never_free_together(policy: str) -> None:
    stream = [single(FPGA, "cat"), single(M, "bob", lasts=7.5)]
    watched = single({**M, **FPGA}, "dan", requires={"slots": 2})
    assert seconds_until_start(watched, stream, policy, workers=1, slots=4, limits=1) <= 60.0


users = st.sampled_from(["ann", "ann", "bob", "cat"])
needs_of_gangs = st.sampled_from([{}, M, N, BOTH, FPGA, {**M, **FPGA}])
needs_of_one = st.sampled_from([{}, M, N, BOTH, FPGA, {"m": 3}, {"m": 4, "n": 2}, {"n": 4}, {"n": 3, **FPGA}])
requirements = st.sampled_from([{}, {}, {"slots": 2}, EXCLUSIVE])
jobs = st.one_of(
    st.builds(gangs, nodes=st.integers(2, 4), needs=needs_of_gangs, owner=users, requires=requirements),
    st.builds(single, needs=needs_of_one, owner=users, requires=requirements),
)


@settings(PATIENT, max_examples=tried(12))
@given(
    watched=jobs,
    stream=st.lists(jobs, min_size=1, max_size=3),
    policy=st.sampled_from([one for one in POLICIES if one != "space-partition"]),  # gangs may fill a job's workers
    order=st.sampled_from([Order.NONE, Order.DELIVER]),
)
def test_every_job_starts_under_random_streams(
    watched: dict[str, Any], stream: list[dict[str, Any]], policy: str, order: Order
) -> None:
    if policy == "round-robin":  # its pointer may pass a job that waits, to a new one of the same user: hold.md
        watched = watched | {"owner": "dan"}
    if not watched["requires"] and "nodes" not in watched and sum(watched["needs"].values()) == 2:
        watched = watched | {"needs": M}  # a narrow task of two limits has no reservation: hold.md
    seconds_until_start(watched, stream, policy, order, workers=10)
