"""What if: the same decisions lead to the same ends, others to those of a simulation of their own."""

from dataclasses import replace
from itertools import islice, pairwise

import pytest

from loopline_master.core.events import SchedulerSettings, WorkerLeft
from loopline_master.core.policies import REGISTRY
from loopline_shared.model import Facts, Load, Order
from loopline_shared.spec import JobSpec, TaskSpec
from loopline_simulator.fast.availability import Absence, Interrupted, absences, alternating
from loopline_simulator.fast.hosts import Pattern, Steady
from loopline_simulator.fast.world import Arrival, FastWorld, Host
from loopline_simulator.full import Conditions
from loopline_simulator.full.timed import TimedWorld
from loopline_simulator.streams import stream
from loopline_simulator.whatif.inputs import batches
from loopline_simulator.whatif.recording import Reported, record
from loopline_simulator.whatif.replay_world import WhatIfWorld
from loopline_simulator.whatif.tally import Tally
from tests.campaign import LONG, tried
from tests.simulator.recorded import Recorded, RecordedChanging

PATTERN = Pattern(to_loaded=1 / 100, to_steady=1 / 10, steady=(0.8, 1.0), loaded=(0.0, 0.2))
BEGAN = 1_700_000_000.0
POLICIES = sorted(REGISTRY) if LONG else ["fair", "first-come", "round-robin", "turnaround"]


def facts(slots=1):
    return Facts("linux", "x86_64", "3.11", "0", "model", cpus=slots, memory_bytes=10**9, slots=slots)


def arrivals(seed=1, jobs=12, tasks=15):
    random = stream(seed, "sizes")
    return [
        Arrival(
            20.0 * n,
            JobSpec(command=["work"], tasks=[TaskSpec(size=round(random.uniform(20, 60), 3)) for _ in range(tasks)]),
        )
        for n in range(jobs)
    ]


def short_jobs(jobs=3, tasks=60):
    random = stream(1, "short")
    sizes = [round(random.uniform(0.5, 1.5), 3) for _ in range(tasks)]
    return [Arrival(5.0 * n, JobSpec(command=["work"], tasks=[TaskSpec(size=s) for s in sizes])) for n in range(jobs)]


def steady_hosts():
    return [Host(f"h{n}", facts(), Steady([1.0, 2.0, 4.0][n % 3])) for n in range(6)]


def fluctuating_hosts(seed=1):
    return [Host(f"h{n}", facts(), PATTERN.speed([1.0, 2.0, 4.0][n % 3], stream(seed, n))) for n in range(6)]


def settings(policy="round-robin", order=Order.HOLD):
    return SchedulerSettings(policy=policy, order=order, lease_s=1e9, stall_after_s=1e9)


def recorded(hosts, kind=Recorded, chosen=None, jobs=None, **options):
    tally = Tally()
    world = kind(chosen or settings(), hosts, jobs or arrivals(), tally, **options)
    world.run()
    return world.log, tally


def what_if(log, **options):
    tally = Tally()
    recording = record(batches(log))
    world = WhatIfWorld(recording, tally, **options)
    world.run()
    return recording, tally


def ends(tally):
    return {job.id: job.finished_at for job in tally.jobs.values()}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_decisions_on_steady_machines_end_alike(policy):
    log, truth = recorded(steady_hosts(), chosen=settings(policy))
    recording, tally = what_if(log)
    assert ends(recording.tally) == pytest.approx(ends(truth))
    assert ends(tally) == pytest.approx(ends(truth), abs=1e-4)
    assert tally.lost_s == pytest.approx(truth.lost_s, abs=1e-2)


@pytest.mark.parametrize("policy", POLICIES)
def test_waiting_at_a_worker_is_not_work(policy):
    """Tasks of a second that are sent ahead: most of the time from sending to result they spend in the queue."""
    chosen = replace(settings(policy), prefetch_s=10.0)
    log, truth = recorded(steady_hosts(), chosen=chosen, jobs=short_jobs())
    recording, tally = what_if(log)
    ran = [span for span in recording.spans if span.worker == "h0" and span.took_s]  # not those taken back
    assert all(one.start + one.took_s <= next_.start + 1e-6 for one, next_ in pairwise(ran)), "it has one slot"
    assert ends(tally) == pytest.approx(ends(truth), abs=1e-4)


@pytest.mark.parametrize("goodbye", ["left", "with the master"])
def test_machines_that_were_stopped_when_all_was_done_are_taken_to_stay(goodbye):
    """Their last words are that they offer no slots: nothing could run there under a policy that takes longer."""
    world = Recorded(settings("first-come", Order.NONE), steady_hosts(), arrivals())
    world.run()
    say_goodbye(world, leaves=goodbye == "left")
    _, tally = what_if(world.log, policy="space-partition", order=Order.HOLD)
    direct = Tally()
    FastWorld(settings("space-partition"), steady_hosts(), arrivals(), direct).run()
    assert max(ends(direct).values()) > world.kernel.now, "it takes longer"
    assert ends(tally) == pytest.approx(ends(direct), abs=1e-4)


def test_an_owner_who_came_back_when_all_was_done_is_still_there():
    world = Recorded(settings(), steady_hosts()[:2], arrivals(jobs=1))
    world.run()
    reported = world._report(world._hosts["h0"])
    withheld = replace(reported.report, load=Load(0, withheld="somebody is at the desk"))
    world._step([replace(reported, report=withheld)])
    moments = record(batches(world.log)).moments
    said = [item for moment in moments for item in moment.items if isinstance(item, Reported)]
    assert ("h0", 0) in [(item.worker, item.load.slots) for item in said]


def say_goodbye(world, leaves):
    for host in world._hosts.values():
        host.offered = 0
        world._step([world._report(host)])
        if leaves:
            world._step([WorkerLeft(host.name, host.session)])


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("policy", POLICIES)
def test_another_policy_on_steady_machines_ends_as_if_simulated_directly(policy, order):
    log, truth = recorded(steady_hosts())
    direct = Tally()
    FastWorld(settings(policy, order), steady_hosts(), arrivals(), direct).run()
    _, tally = what_if(log, policy=policy, order=order)
    assert ends(tally) == pytest.approx(ends(direct), abs=1e-4)
    if (policy, order) == ("first-come", Order.NONE):
        assert ends(direct) != pytest.approx(ends(truth), rel=0.01)


def test_the_same_decisions_on_machines_that_fluctuate_end_alike():
    log, truth = recorded(fluctuating_hosts(), chosen=settings("first-come"))
    _, tally = what_if(log)
    assert ends(tally) == pytest.approx(ends(truth), abs=1e-4)


@pytest.mark.parametrize("absence", list(Absence))
@pytest.mark.parametrize("seed", range(1, 1 + tried(1, 3)))
def test_the_same_decisions_on_machines_that_come_and_go_end_alike(absence, seed):
    chosen = SchedulerSettings(policy="first-come", order=Order.HOLD, lease_s=8.0, max_replicas=1)
    stays = {host.name: list(islice(alternating(stream(seed, host.name), 90, 30), 200)) for host in steady_hosts()}
    hosts = steady_hosts()
    for host in hosts if absence is Absence.SLEEPS else ():
        host.speed = Interrupted(host.speed, absences(stays[host.name]))
    log, truth = recorded(hosts, RecordedChanging, chosen, stays=stays, absence=absence)
    _, tally = what_if(log)
    assert truth.lost_s > 0 or absence is not Absence.LOSES
    assert len(tally.jobs) == 12
    apart = [abs(ends(tally)[job] - end) / (end - truth.jobs[job].submitted_at) for job, end in ends(truth).items()]
    assert max(apart) < 0.01


@pytest.mark.parametrize("policy", POLICIES)
def test_grid_with_delays_and_queues_is_reproduced(policy):
    """Real sessions and workers, frames that take their time, and short tasks that wait at unlike machines."""
    apart, means = [], []
    quick, slow = Conditions(delay_s=0.002, jitter_s=0.003), Conditions(delay_s=0.03, jitter_s=0.03)
    for seed, slots, conditions in ((0, 1, quick), (2, 1, slow), (14, 2, slow)):
        hosts = [Host(f"h{n}", facts(slots), Steady([1.0, 2.0, 4.0][n % 3])) for n in range(4)]
        chosen = SchedulerSettings(policy=policy, lease_s=30.0, prefetch_s=1.0)
        jobs = [replace(arrival, at=1.0 + arrival.at * 0.6) for arrival in short_jobs(jobs=4, tasks=20)]
        world = TimedWorld(seed, chosen, hosts, jobs, conditions=conditions, check_every=1000)
        world.run()
        recording, tally = what_if([line + b"\n" for line in world.world.store.log])
        pairs = [
            (job.finished_at - job.submitted_at, tally.jobs[job.id].finished_at - tally.jobs[job.id].submitted_at)
            for job in recording.tally.jobs.values()
        ]
        apart += [abs(again / once - 1) for once, again in pairs]
        means.append(abs(sum(again for _, again in pairs) / sum(once for once, _ in pairs) - 1))
    assert max(means) < 0.01
    assert max(apart) < 0.03
