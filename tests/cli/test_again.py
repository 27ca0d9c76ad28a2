"""Running failed tasks again: unchanged, one by one, or as a new job with a change."""

from __future__ import annotations

import pytest

from loopline_shared.job.parameters import Range
from loopline_shared.model import Function, TaskState
from loopline_shared.rest.bodies import Submission
from loopline_shared.spec import JobSpec, TaskSpec
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, ok, page
from tests.cli.views import job, task

SWEEP = JobSpec(
    name="fit", command=["fit", "--seed", "{seed}"], parameters={"seed": Range(range=[1, 10])}, size=100.0,
    timeout_s=60.0, after=[3], outputs=["*.csv"],
)  # fmt: skip


@pytest.fixture(autouse=True)
def earlier(fake: FakeMaster) -> None:
    failed = [task(number, TaskState.FAILED, parameters={"seed": number}) for number in (2, 9)]
    fake.on("GET /jobs/7", ok(job(7, spec=SWEEP, task_count=10)))
    fake.on("GET /jobs/7/tasks", page(*failed), page(task(4, TaskState.CANCELLED, parameters={"seed": 4})))
    fake.on("POST /jobs", ok(Submission(id=8, task_count=3), 201))


def test_unsuccessful_tasks_can_be_submitted_with_a_change(fake: FakeMaster, run: Run) -> None:
    ran = run("submit", "--only-failed-of", "7", "--timeout", "2m")
    assert (ran.code, ran.err) == (0, "")
    assert [seen.query["state"] for seen in fake.asked("GET /jobs/7/tasks")] == ["failed", "cancelled"]
    (seen,) = fake.asked("POST /jobs")
    assert seen.body["parameters"] == {"rows": [{"seed": 2}, {"seed": 4}, {"seed": 9}]}
    assert (seen.body["name"], seen.body["command"]) == ("fit", ["fit", "--seed", "{seed}"])
    assert (seen.body["timeout_s"], seen.body["outputs"]) == (120.0, ["*.csv"])
    assert seen.body["size"] == 30.0, "its share of the work"
    assert "after" not in seen.body, "its dependencies have succeeded"


def test_new_command_gets_the_same_parameters(fake: FakeMaster, run: Run) -> None:
    assert run("submit", "--only-failed-of", "7", "--", "refit", "{seed}").code == 0
    assert fake.asked("POST /jobs")[0].body["command"] == ["refit", "{seed}"]


def test_listed_tasks_stay_listed(fake: FakeMaster, run: Run) -> None:
    listed = JobSpec(tasks=[TaskSpec(command=["t", str(number)]) for number in range(1, 11)])
    fake.on("GET /jobs/7", ok(job(7, spec=listed, task_count=10)))
    assert run("submit", "--only-failed-of", "7").code == 0
    assert fake.asked("POST /jobs")[0].body["tasks"] == [{"command": ["t", n]} for n in ("2", "4", "9")]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--file", "job.yaml"], "both describe the whole job"),
        (["--param", "seed=1"], "takes the tasks of that job"),
        (["--array", "1-3"], "takes the tasks of that job"),
    ],
)
def test_option_cannot_be_combined_with_others(run: Run, words: list[str], reason: str) -> None:
    ran = run("submit", "--only-failed-of", "7", *words)
    assert (ran.code, reason in ran.err) == (2, True)


def test_calls_of_functions_are_refused(fake: FakeMaster, run: Run) -> None:
    function = Function(f"sha256:{'0' * 64}", "3.11", "s")
    calls = JobSpec.model_validate({"function": function, "requires": {"python": "3.11"}})
    fake.on("GET /jobs/7", ok(job(7, spec=calls)))
    assert "submit the calls again from Python" in run("submit", "--only-failed-of", "7").err


def test_job_without_failures_has_no_tasks_to_run_again(fake: FakeMaster, run: Run) -> None:
    fake.on("GET /jobs/7/tasks", page())
    assert "no task of job 7 has failed" in run("submit", "--only-failed-of", "7").err


@pytest.mark.parametrize(
    ("words", "tasks"),
    [(["7"], None), (["7.3"], "3"), (["7", "--task", "9", "-t", "3"], "3,9"), (["7.3", "-t", "3"], "3")],
)
def test_retry_takes_tasks(fake: FakeMaster, run: Run, words: list[str], tasks: str | None) -> None:
    fake.on("POST /jobs/7/retry", ok(job(7)))
    assert run("retry", *words).code == 0
    assert fake.asked("POST /jobs/7/retry")[0].query.get("tasks") == tasks
