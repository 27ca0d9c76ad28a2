"""Reports without news change nothing; they renew the lease, and a worker that dies loses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loopline_master.core.events import (
    BATCH,
    Event,
    MasterStoodStill,
    SchedulerSettings,
    WorkerLeft,
    WorkerReported,
    WorkersHeard,
)
from loopline_master.core.kernel.entities import Worker
from loopline_master.core.wings.gangs.gang import GangPhase
from loopline_master.core.wings.gangs.gang_memory import GangMemory
from loopline_master.core.wings.leases.kept_back import LONG_LEASES, KeptBack, brings_news
from loopline_shared.model import AttemptId, AttemptState, Held, Load, Yielded
from loopline_shared.protocol.attempt_ranges import ranges_of
from loopline_shared.protocol.transfers import CachedFile, PeerReport
from loopline_shared.protocol.worker_link import Report
from loopline_simulator.full import live_through
from loopline_simulator.full.grid_world import GridWorld
from loopline_simulator.full.machine import Link
from loopline_simulator.full.timed import TimedWorld
from tests.campaign import tried
from tests.scheduling.driver import Grid, facts
from tests.simulator.test_full_world import CALM, ROUGH

AS_BEFORE = Load(2, 2.0)
MINE = AttemptId(1, 1, 1)


def believed(grid: Grid, name: str = "ant") -> Worker:
    return grid.scheduler.state.workers[name]


def said(grid: Grid, load: Load = AS_BEFORE, **more: Any) -> bool:
    """Return whether this next Report of the worker would be news."""
    report = Report(9, 9, more.pop("holding", ()), (), load, **more)
    return brings_news(grid.scheduler.state, believed(grid), report)


@pytest.fixture
def grid() -> Grid:
    grid = Grid(peers=True)
    grid.join("ant", facts(2))
    return grid


def test_first_report_of_a_session_is_news(grid: Grid) -> None:
    assert not said(grid)
    grid.join("ant", reports=False)
    assert said(grid)
    grid.report("ant")
    assert not said(grid)


def test_work_counts_until_the_last_report_kept_back() -> None:
    grid = Grid(overdrawn_after=10.0, lease_s=1e6, max_replicas=1)
    grid.workers("ant", "bee")
    grid.submit(1, 1.0)
    held = grid.submit(1, 2.0)
    for name in ("ant", "bee"):
        grid.report(name)
    kept = KeptBack(grid.scheduler.state)
    at, same = grid.now + 9.0, Report(9, 9, (Held(MINE),), (), Load(1, 1.0))
    for name, report in (("ant", same), ("bee", replace(same, holding=()))):
        assert kept.keep(WorkerReported(name, grid.agents[name].session, report), at)
    grid.now = grid.scheduler.wake_at or 0.0
    (heard,) = kept.silence_events([], grid.now)
    assert heard == WorkersHeard({"ant": grid.now - at}, LONG_LEASES * 1e6), (
        "only workers whose attempts belong to jobs that hold others"
    )
    grid.step(heard)
    assert not grid.job(1).overdrawn, "it was at work for 9 s"
    at = grid.now + 2.0
    assert kept.keep(WorkerReported("ant", grid.agents["ant"].session, same), at)
    grid.now = grid.scheduler.wake_at or 0.0
    grid.step(*kept.silence_events([], grid.now))
    assert grid.job(1).overdrawn
    assert grid.attempts_of(AttemptId(held, 1, 1).task_id)


def test_load_fields_that_no_decision_reads_are_no_news(grid: Grid) -> None:
    for more in ({"memory_available_bytes": 5}, {"disk_free_bytes": 5}, {"idle_s": 9.0}, {"cpu_pressure": 3.0}):
        assert not said(grid, replace(AS_BEFORE, **more))
    assert not said(grid, Load(9, 2.0)), "more slots than the worker has"
    for news in ({"slots": 1}, {"in_use": True}, {"withheld": "x"}, {"on_battery": True}, {"yielded": Yielded(1)}):
        assert said(grid, replace(AS_BEFORE, **news)), news


def test_spare_cpu_is_news_by_quarters_of_a_slot_with_hysteresis(grid: Grid) -> None:
    assert not said(grid, Load(2, 1.9)), "within the hysteresis of the next quarter"
    assert said(grid, Load(2, 1.7))
    assert not said(grid, Load(2, 9.0)), "all cores are spare in both"


def test_delay_is_news_if_it_changes_by_more_than_its_jitter(grid: Grid) -> None:
    assert not said(grid, replace(AS_BEFORE, delay_s=0.009))
    assert said(grid, replace(AS_BEFORE, delay_s=0.011))
    believed(grid).load = replace(AS_BEFORE, delay_s=0.1)
    assert [said(grid, replace(AS_BEFORE, delay_s=delay_s)) for delay_s in (0.04, 0.06, 0.19, 0.21)] == [1, 0, 0, 1]


def test_newly_cached_files_are_news(grid: Grid) -> None:
    assert not said(grid, peers=PeerReport(port=4000, sent_bytes=9))
    assert said(grid, peers=PeerReport(cached=(CachedFile("a" * 64, 10**9),)))


def test_held_attempts_known_to_the_master_are_no_news(grid: Grid) -> None:
    grid.submit(size=100.0)
    assert said(grid, holding=(Held(MINE),)), "its start is news"
    grid.report("ant")
    assert not said(grid, holding=(Held(MINE, wall_s=7.0, cpu_s=6.0),))
    assert said(grid, holding=(Held(MINE, frozen=True),))
    assert said(grid), "its loss is news"
    assert said(grid, holding=(Held(MINE), Held(AttemptId(1, 1, 2)))), "an unknown attempt is news"


def test_attempt_that_has_got_its_inputs_is_news(grid: Grid) -> None:
    grid.submit(1)
    grid.report("ant", clock=(0.0, 5.0))
    assert not said(grid, holding=(Held(MINE, in_slot_s=9.0),))
    assert said(grid, holding=(Held(MINE, 1.0, in_slot_s=9.0),))


def test_waiting_attempts_known_to_the_master_are_no_news(grid: Grid) -> None:
    grid.submit(size=100.0)
    attempt = grid.scheduler.state.attempts[MINE]
    for state in AttemptState:
        attempt.state = state
        assert said(grid, waiting=ranges_of([MINE])) is (state is not AttemptState.PREFETCHED)


def test_gang_member_that_may_need_a_command_is_news() -> None:
    grid = Grid()
    grid.workers("ant", "bee", gangs=True)
    grid.submit(nodes=2, size=100.0)
    for _ in range(3):
        for name in ("ant", "bee"):
            grid.report(name)
    (mine,) = grid.running("ant")
    assert not said(grid, Load(1, 1.0), holding=(Held(mine),)), "its gang is running"
    (gang,) = grid.scheduler.state.own(GangMemory).gangs.values()
    gang.phase = GangPhase.HALTED
    assert said(grid, Load(1, 1.0), holding=(Held(mine),)), "it was asked to freeze"


def test_gang_member_that_has_finished_is_no_news() -> None:
    grid = Grid()
    grid.workers("ant", "bee", gangs=True)
    grid.submit(nodes=2, size=100.0)
    for _ in range(3):
        for name in ("ant", "bee"):
            grid.report(name)
    (mine,) = grid.running("ant")
    grid.end(mine)
    assert grid.store.attempts[mine].state is AttemptState.FINISHED
    assert not said(grid, Load(1, 1.0)), "the gang's other member is running"


# --- leases ---------------------------------------------------------------------------------------------------------


class Listener:
    """A grid whose Reports pass through KeptBack, as in the engine."""

    def __init__(self, grid: Grid) -> None:
        self.grid, self.kept = grid, KeptBack(grid.scheduler.state)
        self.rows = list[Event]()

    def report(self, name: str, **load: Any) -> bool:
        """Return whether the Report was kept back."""
        grid, agent = self.grid, self.grid.agents[name]
        held = tuple(Held(attempt) for attempt in agent.running)
        report = Report(
            agent.sent + 1, agent.seen, held, (), Load(agent.facts.slots, float(agent.facts.slots), **load)
        )
        if self.kept.keep(WorkerReported(name, agent.session, report), grid.now):
            return True
        grid.report(name)
        return False

    def wait(self, seconds: float, *alive: str) -> None:
        """Let time pass; live workers report every ten seconds, and the engine wakes when it must."""
        until = self.grid.now + seconds
        while self.grid.now < until:
            self.grid.now += 1.0
            for name in alive if not self.grid.now % 10 else ():
                self.report(name)
            times = (self.grid.scheduler.wake_at, self.kept.wake_at)
            if min(at for at in (*times, until) if at is not None) <= self.grid.now:
                self.step()

    def step(self, *events: Event) -> None:
        told = self.kept.silence_events(events, self.grid.now)
        self.rows += told
        self.grid.step(*told, *events)


@pytest.fixture
def listener(grid: Grid) -> Listener:
    grid.join("bee", facts(2))
    grid.submit(4, size=10_000.0)
    for name in ("ant", "bee"):
        grid.report(name)
    return Listener(grid)


def test_worker_without_news_keeps_its_lease_with_few_log_rows(listener: Listener) -> None:
    listener.wait(86_400, "ant", "bee")
    assert all(believed(listener.grid, name).session for name in ("ant", "bee"))
    assert {attempt.state for attempt in listener.grid.store.attempts.values()} == {AttemptState.RUNNING}
    rows_a_day = 86_400 / (LONG_LEASES * listener.grid.settings.lease_s)
    assert rows_a_day <= len(listener.rows) <= 1.1 * rows_a_day
    assert all(isinstance(row, WorkersHeard) and len(row.ago_s) == 2 for row in listener.rows[1:])
    # such a row only renews leases
    assert listener.grid.store.replayed().workers == listener.grid.store.workers


def test_silent_worker_is_lost_one_lease_after_its_last_report(listener: Listener) -> None:
    listener.wait(3600, "ant", "bee")
    listener.wait(29, "ant")
    assert believed(listener.grid, "bee").session is not None
    listener.wait(1, "ant")
    assert believed(listener.grid, "bee").session is None
    assert believed(listener.grid).session is not None
    lost = [one for one in listener.grid.store.attempts.values() if one.state is AttemptState.LOST]
    assert [one.worker for one in lost] == ["bee", "bee"]
    assert lost[0].assumed_cpu_ms == pytest.approx(3_600_000, abs=1000), "until its last Report"
    assert listener.grid.store.replayed().attempts == listener.grid.store.attempts


def test_closed_link_leaves_the_rest_of_one_lease(listener: Listener) -> None:
    listener.wait(3500, "ant", "bee")
    assert believed(listener.grid, "bee").lease_until > listener.grid.now + 100.0
    listener.step(WorkerLeft("bee", listener.grid.agents["bee"].session))
    assert believed(listener.grid, "bee").lease_until == pytest.approx(listener.grid.now + 30.0)
    listener.wait(31, "ant")
    assert AttemptState.LOST in {attempt.state for attempt in listener.grid.store.attempts.values()}


def test_no_worker_is_lost_when_the_master_was_suspended(listener: Listener) -> None:
    listener.wait(3500, "ant", "bee")
    listener.grid.now += 20
    listener.step(MasterStoodStill())
    listener.wait(25)
    assert all(believed(listener.grid, name).session for name in ("ant", "bee"))
    listener.wait(10, "ant")
    assert believed(listener.grid, "bee").session is None


def test_report_with_news_sets_a_lease_of_normal_length(listener: Listener) -> None:
    listener.wait(3600, "ant", "bee")
    assert not listener.report("ant", in_use=True)
    assert believed(listener.grid).lease_until == pytest.approx(listener.grid.now + 30.0)


# --- in the full world ----------------------------------------------------------------------------------------------


def test_report_kept_back_would_only_renew_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a grid with all faults, gangs and owners, each such Report is stepped alone and changes nothing else."""
    counts = {"kept back": 0, "of busy workers": 0}

    def step_alone(world: GridWorld, link: Link, event: WorkerReported) -> None:
        if not world.inbox:
            world.turn()  # first step what is due by time, so that the effects are the Report's
        state, report = world.scheduler.state, event.report
        worker, wake_at = state.workers.get(event.worker), world.scheduler.wake_at
        is_due = bool(world.inbox) or (wake_at is not None and wake_at <= world.now)
        world.inbox.append(event)
        if is_due or worker is None or worker.session != event.session or brings_news(state, worker, report):
            return
        effects = world.turn()
        assert effects is not None
        assert (list(effects.workers), list(effects.assigns)) == ([event.worker], [event.worker])
        changed = (effects.jobs, effects.tasks, effects.attempts, effects.closes, effects.programs)
        assert not any((*changed, effects.of_wings, effects.told_by_wings, effects.dropped_by_wings))
        (assign,) = effects.assigns.values()
        assert not any((assign.run, assign.cancel, assign.words, assign.peers, assign.quarantine))
        counts["kept back"] += 1
        counts["of busy workers"] += bool(report.holding)

    monkeypatch.setattr(GridWorld, "_master_hears", step_alone)
    for seed in range(tried(2)):
        settings = SchedulerSettings("fair", report_every_s=4.0, prefetch_s=60.0)
        live_through(seed, settings, replace(ROUGH, jobs=6, gangs=0.3 * (seed % 2), until_s=9_000.0))
    assert min(counts.values()) > 20, counts


@pytest.mark.parametrize("policy", ["fair", pytest.param("turnaround", marks=pytest.mark.campaign)])
def test_decisions_are_the_same_with_and_without_keeping_back(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lived(*, keeps_back: bool) -> TimedWorld:
        monkeypatch.setattr(GridWorld, "keeps_back", keeps_back)
        return live_through(3, SchedulerSettings(policy, report_every_s=4.0), replace(CALM, jobs=8, max_slots=2))

    with_all, with_news = lived(keeps_back=False).world.store, lived(keeps_back=True).world.store
    events = [event for line in with_news.log for event in BATCH.validate_json(line).events]
    assert any(isinstance(event, WorkersHeard) for event in events)
    assert len(b"".join(with_news.log)) < 0.7 * len(b"".join(with_all.log))
    assert with_news.attempts == {number: replace(one, sent=with_news.attempts[number].sent)
                                  for number, one in with_all.attempts.items()}  # fmt: skip
    assert with_news.jobs == with_all.jobs


def test_log_of_a_run_with_all_faults_has_workers_heard_events() -> None:
    world = live_through(5, SchedulerSettings(report_every_s=4.0), replace(ROUGH, jobs=4))  # it checks the replay
    assert b"workers_heard" in b"".join(world.world.store.log)
