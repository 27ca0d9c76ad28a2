"""The backend of joblib as its users know it, against a stand-in for the master."""

from __future__ import annotations

import operator
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import cloudpickle
import joblib
import pytest

import loopline
import loopline.joblib
from tests.python.small_grid import SmallGrid


@pytest.fixture
def backend(grid: SmallGrid, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Register the backend, for the grid that the environment names."""
    monkeypatch.setenv("LOOPLINE_MASTER", grid.url)
    monkeypatch.setenv("LOOPLINE_TOKEN", "t")
    loopline.joblib.register()
    yield "loopline"
    joblib.parallel.BACKENDS.pop("loopline")


def test_the_name_of_the_backend_is_enough_for_calls_to_go_to_the_grid(grid: SmallGrid, backend: str) -> None:
    with joblib.parallel_config(backend):
        assert joblib.Parallel()(joblib.delayed(operator.neg)(number) for number in range(10)) == [
            -number for number in range(10)
        ]
    assert sum(len(job.calls) for job in grid.jobs.values()) > 1


def test_the_number_of_jobs_is_that_of_the_slots_unless_it_is_given(grid: SmallGrid, backend: str) -> None:
    grid.pythons = ["3.11", "3.11"]  # two workers of two slots each
    with joblib.parallel_config(backend):
        assert [joblib.effective_n_jobs(number) for number in (None, -1, -2, 1, 7)] == [4, 4, 3, 1, 7]
    with joblib.parallel_config(backend, n_jobs=3):
        assert joblib.effective_n_jobs(None) == 3
    with joblib.parallel_config(backend), pytest.raises(ValueError, match="n_jobs == 0"):
        joblib.effective_n_jobs(0)


def test_checkpoints_are_refused_because_calls_are_put_together(grid: SmallGrid, backend: str) -> None:
    with pytest.raises(ValueError, match="leave out checkpoint"), joblib.parallel_config(backend, checkpoint=True):
        pass


def test_nested_parallel_calls_stay_within_their_call(grid: SmallGrid, backend: str) -> None:
    """If calls waited for slots to make calls of their own, they could hold all slots for ever."""

    def nested(number: int) -> tuple[int, Any]:
        inner = joblib.Parallel()
        return sum(inner(joblib.delayed(operator.mul)(number, factor) for factor in range(3))), type(inner._backend)

    with joblib.parallel_config(backend):
        made = joblib.Parallel(batch_size=1)(joblib.delayed(nested)(number) for number in range(4))
    assert [total for total, _ in made] == [0, 3, 6, 9]
    assert all(not issubclass(kind, loopline.joblib.Backend) for _, kind in made)
    assert sum(len(job.calls) for job in grid.jobs.values()) == 4


def test_one_job_is_made_at_home(grid: SmallGrid, backend: str) -> None:
    with joblib.parallel_config(backend):
        assert joblib.Parallel(n_jobs=1)(joblib.delayed(abs)(number) for number in (-1, -2)) == [1, 2]
    assert grid.jobs == {}


def test_a_call_that_asks_for_the_backend_by_name_gets_threads_where_it_runs() -> None:
    """On a worker there is no grid to ask: in an interpreter that does not know the backend."""
    nested = f"""
import operator, pickle, joblib
call = pickle.loads({cloudpickle.dumps(loopline.joblib._caller())!r})
inner = lambda: joblib.Parallel(n_jobs=2, backend="loopline")(joblib.delayed(operator.neg)(n) for n in range(3))
print(call(inner), type(joblib.parallel.BACKENDS["loopline"]()).__name__)
"""
    ran = subprocess.run([sys.executable, "-c", nested], capture_output=True, text=True, check=False)
    assert ran.stdout == "[0, -1, -2] ThreadingBackend\n", ran.stderr


def test_threads_in_a_call_are_limited_as_with_every_backend(grid: SmallGrid, backend: str) -> None:
    with joblib.parallel_config(backend, inner_max_num_threads=3, environment={"MKL_NUM_THREADS": "2"}):
        joblib.Parallel()(joblib.delayed(abs)(number) for number in range(3))
    environment = grid.jobs[1].spec.environment
    assert (environment["OMP_NUM_THREADS"], environment["MKL_NUM_THREADS"]) == ("3", "2")
