"""The grid as a backend of joblib: for ``n_jobs`` of scikit-learn, and everything else that joblib runs in parallel.

::

    loopline.joblib.register()
    with joblib.parallel_config("loopline"):
        cross_val_score(model, X, y)

Options of ``loopline.Executor`` may follow the backend's name. Workers need joblib, and what the calls import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from joblib import register_parallel_backend
from joblib._parallel_backends import ThreadingBackend
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase

from loopline.executor import Executor
from loopline.functions.futures import GridFuture
from loopline.in_a_call import is_in_a_call


def register() -> None:
    """Make ``backend="loopline"`` known to joblib. In a call on a worker it stands for threads of the call."""
    register_parallel_backend("loopline", ThreadingBackend if is_in_a_call() else Backend)


class Backend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """The backend. Short calls go in batches that joblib makes as large as pays."""

    default_n_jobs = -1  # joblib's default of 1 would silently run all calls in this process
    supports_retrieve_callback = True
    supports_inner_max_num_threads = True

    def __init__(self, nesting_level: int | None = None, inner_max_num_threads: int | None = None, **options: Any):
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        if options.get("checkpoint"):
            raise ValueError(
                "joblib puts several calls into one, so their saved states would mix: leave out checkpoint"
            )
        self._environment = options.pop("environment", {})
        self._options = {"name": "joblib", "session": uuid4().hex, **options}
        self._executor: Executor | None = None
        self._call = _caller()

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        self.parallel = parallel
        self._executor = self._new_executor()
        return self.effective_n_jobs(n_jobs)

    def _new_executor(self) -> Executor:
        threads = self.inner_max_num_threads  # None: one for each slot
        environment = {} if threads is None else dict.fromkeys(self.MAX_NUM_THREADS_VARS, str(threads))
        return Executor(**self._options, environment=environment | self._environment)

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls are made at a time: for -1, and for None, as many as there are slots."""
        if n_jobs is None:
            n_jobs = self.default_n_jobs
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs > 0:
            return n_jobs
        with self._new_executor() as executor:
            return max(1, (executor._max_workers or 1) + 1 + n_jobs)

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], object]) -> GridFuture:
        assert self._executor
        future = self._executor.submit(self._call, func)
        future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: GridFuture) -> Any:
        return out.result()

    def terminate(self) -> None:
        if self._executor:
            self._executor.terminate()
        self._executor = None

    def abort_everything(self, ensure_ready: bool = True) -> None:
        self.terminate()
        if ensure_ready:
            self.configure(self.parallel.n_jobs, self.parallel)


def _caller() -> Callable[[Callable[[], Any]], Any]:
    """Return a function that is pickled by value, so that workers need no client of Loopline's.

    What a call asks of this backend by name, it gets from threads of its own: calls that waited for other calls could
    hold every slot for ever.
    """

    def call(batch: Callable[[], Any]) -> Any:
        from joblib import parallel

        if "loopline" not in parallel.BACKENDS:
            parallel.register_parallel_backend("loopline", parallel.ThreadingBackend)
        return batch()

    return call
