"""One job more: when it would end, which jobs it would delay, and which it must wait for."""

import json

import pytest

from loopline_master.core.events import WorkerDrained
from loopline_shared.errors import LooplineError
from loopline_shared.job.parameters import Range
from loopline_shared.model import Order, Outcome, Result
from loopline_shared.spec import JobSpec
from loopline_simulator.__main__ import main as simulate
from loopline_simulator.whatif.durations import Durations
from loopline_simulator.whatif.forecast import forecasts
from loopline_simulator.whatif.inputs import read_job
from loopline_simulator.whatif.outlook import outlook, text
from tests.simulator.test_what_if_model import Log


def job(size=None, tasks=1, **options):
    return JobSpec(name="new", command=["x"], parameters={"i": Range(range=[1, tasks])}, size=size, **options)


def ask(log, new, seeds=20):
    recording = log.recording()
    runs = forecasts(recording, Durations(recording), new, recording.settings, seeds)
    return outlook(recording, new, recording.settings, runs)


def busy(order=Order.NONE, policy="first-come"):
    """Two machines as fast as measured; job 1 is done, and job 2 has been at work for 4 seconds of 20 each."""
    log = Log(policy, order=order)
    log.join("ant")
    log.join("bee")
    log.submit(10, 10)
    log.wait(10)
    for name in ("ant", "bee"):
        log.report(name, Result(log.holding[name][0], Outcome.SUCCEEDED, 0, wall_s=10))
    log.submit(20, 20)
    log.wait(4)
    log.report("ant")
    return log


def test_on_steady_machines_all_is_certain_and_exact():
    found = ask(busy(), job(size=30, tasks=3))
    assert (found.runs, found.ended, found.waits_for, found.delays[0].mean_s) == (1, 1, [], 0.0)
    assert (found.start.median, found.end.median) == (pytest.approx(16), pytest.approx(16 + 20))
    assert "would delay no job" in text(found)


@pytest.mark.parametrize(
    ("after", "end_s"),
    [(None, 36.0), (6.0, 30.0), (15.9, 20.1), (1e9, 36.0)],  # of tasks that end at 16, on two machines
)
def test_it_is_submitted_at_a_moment_after_the_last_word_of_a_grid_at_work(after, end_s, tmp_path, capsys):
    log, file = busy(), tmp_path / "job.json"
    file.write_text(job(size=30, tasks=3).model_dump_json())
    (tmp_path / "log").write_bytes(b"".join(log.lines))
    at = [] if after is None else ["--at", str(log.now + after)]
    words = ["what-if", str(tmp_path / "log"), "--what-if-submit", str(file), "--json"]
    assert simulate([*words, *at]) == 0
    assert json.loads(capsys.readouterr().out)["end"]["median"] == pytest.approx(end_s)


def test_a_late_task_is_taken_to_last_about_as_long_again_as_it_is_late():
    log = busy()
    log.wait(17.5)
    log.report("ant")
    found = ask(log, job(size=10))
    assert found.runs == 20
    assert 0.9 * 10 <= found.end.least < found.end.most <= 1.1 * (10 + 2 * 1.5)


def test_an_equal_job_waits_and_the_guarantee_holds():
    found = ask(busy(Order.HOLD, "round-robin"), job(size=40, tasks=1))
    assert found.waits_for == [2]
    assert found.start.median >= 16
    assert "may not pass    job 2" in text(found)
    assert ask(busy(Order.HOLD, "round-robin"), job(size=39, tasks=1)).waits_for == []


def test_whom_it_delays_and_by_how_much():
    log = busy(policy="round-robin")
    log.submit(30, 30)
    found = ask(log, job(size=40, tasks=4))
    delays = {delay.job: delay.mean_s for delay in found.delays}
    assert delays[2] == pytest.approx(0)
    assert delays[3] > 5
    assert f"would delay     job 3 by {delays[3]:,.1f} s" in text(found)


def test_random_quantities_give_the_same_range_each_time():
    log = busy()
    log.submit(tasks=6)  # of unknown size
    for name, after in (("ant", 16), ("bee", 0), ("ant", 7), ("bee", 20), ("ant", 1)):
        log.end(name, after, wall=20 if name == "bee" else None)
    found = ask(log, job(tasks=3))
    assert found.runs == 20
    assert found.end.least < found.end.median < found.end.most
    assert ask(log, job(tasks=3)) == found
    assert "between" in text(found)
    assert "20 runs" in text(found)
    json.dumps(found.to_json())


def test_machines_that_are_not_there_take_nothing():
    log = busy()
    log.leave("bee")
    log.step(WorkerDrained("ant"))
    found = ask(log, job(size=10))
    assert (found.start, found.end, found.ended) == (None, None, 0)
    assert "never, on the machines there are" in text(found)
    assert ask(busy(), job(size=10, requires={"os": "windows"})).ended == 0


def test_a_job_that_the_master_would_not_take():
    log = Log(max_tasks=5)
    log.join("ant")
    with pytest.raises(LooplineError, match="more than this master's limit"):
        ask(log, job(tasks=6))


# --- job files ------------------------------------------------------------------------------------------------


def test_a_job_as_a_file(tmp_path):
    """Job files in other languages are the client's: see tests/cli."""
    (tmp_path / "job.json").write_text('{"command": ["a"], "size": 5, "parameters": {"i": {"range": [1, 3]}}}')
    assert read_job(tmp_path / "job.json") == JobSpec(command=["a"], size=5.0, parameters={"i": Range(range=[1, 3])})


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ('{"command": ["a"], "sice": 5}', "sice: "),
        ("{", "Invalid JSON"),
        ("[]", "expected"),
        ("\udcff", "Invalid JSON"),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_no_job(tmp_path, content, what):
    if content is not None:
        (tmp_path / "job.json").write_text(content, errors="surrogateescape")
    with pytest.raises(LooplineError) as raised:
        read_job(tmp_path / "job.json")
    assert what in raised.value.message
    assert "job.json" in raised.value.message
