"""The model behind what if: how long attempts take that were never seen, failures, owners' requests, bad logs."""

import pytest

from loopline_master.core.events import (
    BATCH,
    Batch,
    JobCancelled,
    JobPaused,
    JobResumed,
    JobRetried,
    JobSubmitted,
    MasterStarted,
    SchedulerSettings,
    WorkerJoined,
    WorkerLeft,
    WorkerReported,
)
from loopline_master.core.scheduler import Scheduler
from loopline_shared.errors import LooplineError
from loopline_shared.job.parameters import Range
from loopline_shared.model import AttemptId, Facts, Held, JobState, Load, Order, Outcome, Result, TaskId
from loopline_shared.protocol.worker_link import Report
from loopline_shared.spec import JobSpec, TaskSpec
from loopline_simulator.whatif.durations import A_MINUTE, Durations
from loopline_simulator.whatif.inputs import batches
from loopline_simulator.whatif.recording import record
from loopline_simulator.whatif.replay_world import WhatIfWorld
from loopline_simulator.whatif.tally import Tally, passings

BEGAN = 1_700_000_000.0


class Log:
    """Written event by event, as a live master would; every worker has one slot and reports when it has news."""

    def __init__(self, policy="first-come", **settings):
        self.scheduler, self.lines, self.now = Scheduler(), [], BEGAN
        self.holding, self.begun, self.seq, self.sessions, self.slots = {}, {}, {}, {}, {}
        settings = {"order": Order.NONE, "max_replicas": 1, "lease_s": 1e6, **settings}
        self.step(MasterStarted(SchedulerSettings(policy=policy, **settings)))

    def step(self, *events):
        self.lines.append(BATCH.dump_json(Batch(self.now, list(events))) + b"\n")
        effects = self.scheduler.step(list(events), self.now)
        for name, assign in effects.assigns.items():
            self.holding[name] += [run.attempt for run in assign.run]
            self.begun |= {run.attempt: self.now for run in assign.run}
            ended = [attempt for attempt in assign.cancel if attempt in self.holding[name]]
            if ended:
                self.report(
                    name,
                    *(Result(attempt, Outcome.CANCELLED, wall_s=self.now - self.begun[attempt]) for attempt in ended),
                )
        return effects

    def join(self, name, speed=1.0, slots=1, boot="b"):
        self.sessions[name], self.seq[name] = self.sessions.get(name, 0) + 1, 0
        self.holding.setdefault(name, [])
        self.slots[name] = slots
        facts = Facts("linux", "x86_64", "3", "0", "model", cpus=slots, memory_bytes=10**9, slots=slots, speed=speed)
        self.step(WorkerJoined(name, self.sessions[name], boot, facts))
        self.report(name)

    def leave(self, name):
        self.step(WorkerLeft(name, self.sessions[name]))

    def report(self, name, *results):
        return self.step(self.reported(name, *results))

    def reported(self, name, *results):
        self.seq[name] += 1
        for result in results:
            self.holding[name].remove(result.attempt)
        held = tuple(Held(attempt) for attempt in self.holding[name])
        report = Report(self.seq[name], 10**6, held, tuple(results), Load(self.slots[name]))
        return WorkerReported(name, self.sessions[name], report)

    def submit(self, *sizes, size=None, tasks=None, **options):
        listed = [TaskSpec(size=one) for one in sizes] or None
        parameters = {"i": Range(range=[1, tasks])} if tasks else None
        self.step(
            JobSubmitted("user", JobSpec(command=["x"], tasks=listed, parameters=parameters, size=size, **options))
        )

    def wait(self, seconds):
        self.now += seconds

    def end(self, name, after, outcome=Outcome.SUCCEEDED, wall=None):
        """The worker's oldest attempt ends ``after`` seconds from now."""
        self.wait(after)
        attempt = self.holding[name][0]
        return self.report(name, Result(attempt, outcome, 0, wall_s=after if wall is None else wall))

    def recording(self):
        return record(batches(self.lines))

    def what_if(self, **options):
        recording, tally = self.recording(), Tally()
        WhatIfWorld(recording, tally, **options).run()
        return tally


def duration(log, task, worker, start=1e5):
    return Durations(log.recording()).plan(TaskId(*task), worker, start, 0).end - start


def test_a_task_of_unknown_size_needs_what_its_attempt_came_to():
    log = Log()
    log.join("ant", speed=1.0)
    log.submit(tasks=2)
    log.end("ant", 30)
    log.end("ant", 50)
    log.join("bee", speed=4.0)
    assert duration(log, (1, 1), "ant") == pytest.approx(30)
    assert duration(log, (1, 1), "bee") == pytest.approx(30 / 4)
    assert duration(log, (1, 2), "bee") == pytest.approx(50 / 4)


def test_a_time_that_is_longer_than_possible_is_not_simulated():
    log = Log()
    log.join("ant")
    log.join("bee")
    log.submit(tasks=2)
    log.wait(30)
    log.leave("ant")
    log.join("ant")  # the time before is unknown, so the attempt's own figure counts
    log.end("ant", 10, wall=1e9)
    assert duration(log, (1, 1), "ant") == pytest.approx(40, abs=0.1)


def test_unknown_task_is_like_others_of_its_job_or_takes_a_minute():
    log = Log()
    log.join("ant")
    log.submit(tasks=3)
    log.end("ant", 20)
    log.end("ant", 40)
    assert duration(log, (1, 3), "ant") == pytest.approx(30)
    empty = Log()
    empty.join("ant", speed=2.0)
    empty.submit(tasks=1)
    assert duration(empty, (1, 1), "ant") == pytest.approx(A_MINUTE / 2)


def test_known_sizes_tell_a_machines_speed_at_each_moment():
    log = Log()
    log.join("ant")
    log.join("bee")
    log.submit(10, 20, 30, 40, 50)  # bee is as fast as measured; ant slows down to half after its first
    log.wait(10)
    log.report("ant", Result(log.holding["ant"][0], Outcome.SUCCEEDED, 0, wall_s=10))
    log.end("bee", 10, wall=20)  # at 20
    log.end("bee", 40)  # the fourth, at 60
    log.wait(10)
    log.report("ant", Result(log.holding["ant"][0], Outcome.SUCCEEDED, 0, wall_s=60))  # the third, at 70
    assert duration(log, (1, 4), "ant", start=0) == pytest.approx(10 + 30 * 2)
    assert duration(log, (1, 4), "ant", start=40) == pytest.approx(80)
    assert duration(log, (1, 3), "bee", start=0) == pytest.approx(30)
    assert duration(log, (1, 3), "ant", start=10) == 60  # as recorded, at that time on that machine


def test_a_job_whose_size_is_far_off_does_not_make_its_machine_fast():
    log = Log()
    log.join("ant")
    for _ in range(3):
        log.submit(10, 10)
        log.end("ant", 10)
        log.end("ant", 10)
    log.submit(36_000)  # a wild guess
    log.end("ant", 10)
    log.join("bee", speed=2.0)
    assert duration(log, (4, 1), "bee") == pytest.approx(5)
    assert duration(log, (1, 1), "ant", start=1e6) == pytest.approx(10)


def test_interrupted_attempt_would_have_taken_longer():
    log = Log()
    log.join("ant")
    log.submit(5, 5)
    log.end("ant", 5)
    log.wait(40)
    log.step(JobCancelled(1))
    (span,) = [span for span in log.recording().spans if span.outcome is Outcome.CANCELLED]
    assert span.task == TaskId(1, 2)
    durations = Durations(log.recording())
    assert durations.plan(TaskId(1, 2), "ant", 5.0, 0).end > 45.0
    assert durations.plan(TaskId(1, 2), "ant", 60.0, 0).end == pytest.approx(65.0)  # at another time, perhaps not


def test_reports_handled_together_are_handled_together_again():
    """Both slots are free before it decides: the fast machine gets the first task, in either order of reports."""
    log = Log()
    log.join("ant", speed=1.0)
    log.submit(10, 40)
    log.join("bee", speed=4.0)
    log.submit(20, 30)
    log.wait(10)
    done = [(name, Result(log.holding[name][0], Outcome.SUCCEEDED, 0, wall_s=10)) for name in ("ant", "bee")]
    log.step(*[log.reported(name, result) for name, result in done])
    assert [log.holding[name][0].task for name in ("ant", "bee")] == [2, 1]
    log.end("bee", 5)
    log.end("ant", 25)
    assert log.what_if().jobs[2].finished_at == pytest.approx(40)


def test_idle_time_does_not_affect_a_machines_speed():
    log = Log()
    log.join("ant")
    log.submit(10, 10)
    log.end("ant", 20)
    log.end("ant", 10)
    log.wait(1000)
    log.submit(10)
    log.end("ant", 20)
    durations = Durations(log.recording())
    past, unit = durations._pasts["ant"], durations.unit
    assert past.length_s == pytest.approx(10 + 20), "the first attempt paid for what others find ready"
    assert past.speeds.work_between(0, past.length_s) == pytest.approx(20 * unit)
    assert [past.at_work_before(moment) for moment in (5.0, 25.0, 500.0, 1035.0)] == pytest.approx([0, 5, 10, 15])


def test_a_task_fails_as_often_as_it_did():
    log = Log(max_attempts=3)
    log.join("ant")
    log.submit(10)
    log.end("ant", 4, Outcome.FAILED)
    log.end("ant", 10)
    tally = log.what_if(policy="round-robin")
    job = tally.jobs[1]
    assert (job.state, job.finished_at) == (JobState.SUCCEEDED, pytest.approx(14))
    hopeless = Log(max_attempts=2)
    hopeless.join("ant")
    hopeless.submit(10)
    hopeless.end("ant", 4, Outcome.FAILED)
    hopeless.end("ant", 4, Outcome.FAILED)
    assert hopeless.what_if(policy="round-robin").jobs[1].state is JobState.FAILED


def test_owners_actions_are_repeated():
    log = Log()
    log.join("ant")
    log.submit(10, 10)
    log.submit(20)
    log.step(JobPaused(1))
    log.end("ant", 10)
    log.end("ant", 20)  # the second job's
    log.wait(30)
    log.step(JobResumed(1))
    log.end("ant", 10)
    log.submit(10)
    log.step(JobCancelled(3))
    tally = log.what_if()
    assert {job.id: job.state for job in tally.jobs.values()} == {
        1: JobState.SUCCEEDED,
        2: JobState.SUCCEEDED,
        3: JobState.CANCELLED,
    }
    assert tally.jobs[1].finished_at == pytest.approx(70)
    found = passings(tally)
    assert (found.count, found.excused) == (1, 0)  # order none: nothing was promised, nothing excused


def test_a_paused_job_that_was_passed_is_excused():
    log = Log(order=Order.HOLD)
    log.join("ant")
    log.join("bee")
    log.submit(10, 10)
    log.submit(20)
    log.step(JobPaused(1))
    log.end("ant", 10)
    log.end("bee", 10)
    log.end("ant" if log.holding["ant"] else "bee", 20)
    recorded = passings(log.recording().tally)
    assert recorded.count == recorded.excused


def test_a_job_is_retried_as_it_is_here():
    log = Log(max_attempts=1)
    log.join("ant")
    log.submit(10, 10)
    log.end("ant", 10)
    log.end("ant", 5, Outcome.FAILED)
    jobs, tasks = log.recording().tally.jobs, [TaskId(1, 2)]
    row = jobs[1]
    failed = [t for t in _tasks(log) if t.id in tasks]
    log.step(JobRetried(row, failed, [(1, 2)]))
    log.end("ant", 10)
    tally = log.what_if()
    assert (tally.jobs[1].state, tally.jobs[1].succeeded) == (JobState.SUCCEEDED, 2)
    assert tally.jobs[1].finished_at == pytest.approx(25)


def _tasks(log):
    scheduler, found = Scheduler(), {}
    for batch in batches(log.lines):
        found |= scheduler.step(batch.events, batch.now).tasks
    return list(found.values())


def test_a_machine_that_fell_silent_is_silent_again():
    log = Log(lease_s=5.0, report_every_s=2.0)
    log.join("ant")
    log.submit(30)
    log.wait(4)
    log.report("ant")  # its last report
    log.wait(6)
    log.step()  # its lease is over
    log.join("bee")
    log.wait(4)
    log.report("bee")
    for _ in range(7):
        log.wait(4)
        log.report("bee")
    assert log.holding["bee"] == [AttemptId(1, 1, 2)]
    tally = log.what_if()
    assert tally.jobs[1].state is JobState.SUCCEEDED
    assert tally.jobs[1].finished_at == pytest.approx(10 + 30, abs=0.1)
    assert tally.lost_s == pytest.approx(9, abs=1)


def test_frame_to_a_silent_machine_is_lost():
    log = Log(lease_s=5.0, report_every_s=2.0)
    log.join("ant")
    log.wait(4)
    log.report("ant")
    log.wait(3)
    log.submit(10)
    assert log.holding["ant"] == [AttemptId(1, 1, 1)]
    log.holding["ant"].clear()  # the frame was lost
    log.wait(3)
    log.step()
    log.wait(10)
    log.join("ant")  # the same agent, at 20
    for _ in range(2):
        log.wait(4)
        log.report("ant")
    log.end("ant", 2, wall=10)
    assert log.what_if().jobs[1].finished_at == pytest.approx(30)


def test_machines_that_went_when_all_was_done_would_have_stayed():
    log = Log(policy="first-come")
    log.join("ant")
    log.join("bee")
    log.submit(10, 10, 10, 10)
    for after in (10, 10):
        log.wait(after)
        for name in ("ant", "bee"):
            log.report(name, Result(log.holding[name][0], Outcome.SUCCEEDED, 0, wall_s=10))
    log.leave("ant")
    log.leave("bee")
    tally = log.what_if(policy="space-partition")
    assert tally.jobs[1].state is JobState.SUCCEEDED


# --- logs that are none -----------------------------------------------------------------------------------------


def test_a_log_that_is_empty_breaks_off_or_is_none():
    log = Log()
    log.join("ant")
    whole = log.lines
    with pytest.raises(LooplineError, match="the log is empty"):
        record(batches([]))
    with pytest.raises(LooplineError, match="breaks off in line 3"):
        record(batches([*whole[:2], whole[2][:-20]]))
    with pytest.raises(LooplineError, match=r"line 2 of the log is not a batch of events: .*JSON"):
        record(batches([whole[0], b"nonsense\n", *whole[1:]]))
    with pytest.raises(LooplineError, match=r"line 2 .*: now: Field required"):
        record(batches([whole[0], b"{}\n"]))
    with pytest.raises(LooplineError, match="does not begin with the start of a master"):
        record(batches(whole[1:]))
