"""``loopline.Executor``: the grid as a pool of the standard library's concurrent.futures.

What needs pydantic or aiohttp is imported in functions: ``Executor.local`` starts a grid first, beside these imports.
"""

from __future__ import annotations

import concurrent.futures.thread
import pickle
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence, Sized
from functools import partial
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar
from uuid import uuid4

from loopline.functions import plain_values
from loopline.functions.loop_thread import LoopThread
from loopline.functions.program_end import ends_with_program
from loopline.in_a_call import check_may_submit
from loopline.page_links import html_of
from loopline_shared.errors import LooplineError

if TYPE_CHECKING:
    from loopline.client import AsyncClient
    from loopline.functions.call_submitter import CallSubmitter
    from loopline.functions.calls import CallOptions, Loads
    from loopline.functions.future_arguments import Arguments
    from loopline.functions.futures import GridFuture, PendingFutures
    from loopline.transfer.package_list import PackageList
    from loopline_shared.job.checkpoint_spec import CheckpointSpec
    from loopline_shared.job.requirements import Requirements

Answer = TypeVar("Answer")

MOST_SINGLE_CALLS = 1000
"""Most calls of one map that are tasks of their own unless ``chunksize`` says otherwise."""
PROBED_CALLS = 8
_MOST_UNSIZED = 1_000_000
_FLUSH_WITHIN_S = 10.0
_LOADS: dict[str, Loads] = {"any": pickle.loads, "plain": plain_values.loads}
_MOST_NAMED_JOBS = 5


class Executor(concurrent.futures.Executor):
    """Calls functions on the grid's workers, in interpreters that stay warm as long as there are calls.

    What is submitted is a job of the master's, safe from the end of this program: ``jobs`` has the numbers, and
    ``attach`` in another program the futures. Functions, arguments and values travel by cloudpickle, so that workers
    need the same Python (major and minor) and the packages that are imported, but not the file that it stands in.
    Modules of your own go along, such as those beside your script (``carried_modules``), unless ``own_modules`` is
    false.

    An executor is one session: its jobs take turns as one job, and are outside the order guarantee. With
    ``order="hold"`` each of them is a job like any other, under the order of the master.

    ``size``: of one call, in reference CPU-seconds. ``modules``: of your own, to be carried as they are in memory,
    such as one that the program has changed. ``requires``: as of a job, such as ``{"memory_bytes": 2**30}``.
    ``session``: executors that give the same one share interpreters. ``gather_s``: of many calls in a row, those that
    follow one another so soon are one job; the first ones go at once.

    ``requirements``: packages that the calls need, as the path of a requirements.txt or as a list such as
    ``["numpy==2.3.1"]``: each worker installs them once, in an environment for all who name the same. Those without a
    wheel need ``allow_builds``.

    ``checkpoint``: a stopped call continues from a state that it saved by ``loopline.checkpoint``; ``True``, or
    settings such as ``{"every_s": 60}``. Each call is then a task of its own, in a new interpreter.

    ``max_workers``: most tasks on the grid at a time; the others wait in this program. ``initializer``: called with
    ``initargs`` in each interpreter before its first call. ``values``: ``"plain"`` takes from workers nothing but
    data (``functions/plain_values.py``), so that none of them can run code in this program. ``detach``: the program
    does not wait for open calls when it ends, and the grid goes on making them. ``ca``: the certificate (PEM) to
    trust the master by, as of a ``Client``. ``echo``: print here what calls print, log and warn of, when they end;
    None: in notebooks.
    """

    _closing: concurrent.futures.Future[None] | None = None
    """Set by shutdown."""
    _stop_grid: Callable[[bool], None] = staticmethod(lambda wait: None)
    """Set by local."""

    def __init__(
        self,
        master: str | None = None,
        token: str | None = None,
        *,
        name: str = "",
        size: float | None = None,
        requires: Requirements | dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        timeout_s: float | None = None,
        max_attempts: int = 1,
        max_replicas: int | None = None,
        checkpoint: CheckpointSpec | dict[str, Any] | bool | None = None,
        modules: Iterable[ModuleType] = (),
        session: str | None = None,
        order: Literal["session", "hold"] = "session",
        gather_s: float = 0.005,
        patience_s: float = 300.0,
        ca: str | None = None,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Sequence[Any] = (),
        detach: bool = False,
        own_modules: bool = True,
        requirements: PackageList | None = None,
        allow_builds: bool = False,
        values: Literal["any", "plain"] = "any",
        echo: bool | None = None,
    ) -> None:
        from loopline.client import AsyncClient
        from loopline.functions.batching import CallBatcher
        from loopline.functions.calls import CallOptions, checkpoint_of, requirements_of
        from loopline.functions.futures import PendingFutures
        from loopline.functions.initializer import Initializer
        from loopline.transfer.package_list import content_of

        _check(max_workers, initializer, detach, values, order)
        options = CallOptions(
            name=name,
            size=size,
            requires=requirements_of(requires or {}),
            environment=dict(environment or {}),
            timeout_s=timeout_s,
            max_attempts=max_attempts,
            max_replicas=max_replicas,
            checkpoint=checkpoint_of(checkpoint),
            own_modules=own_modules,
            requirements=None if requirements is None else content_of(requirements),
            allow_builds=allow_builds,
            part_of=uuid4().hex if order == "session" else None,
        )
        self._modules, self._saves = tuple(modules), options.checkpoint is not None
        self._chunks_may_vary = max_attempts == 1 and timeout_s is None and not self._saves
        self._initializer, self._detach = initializer and Initializer(initializer, initargs), detach
        self._client = AsyncClient(master, token, patience_s=patience_s, ca=ca)
        self._pending, self._batcher = PendingFutures(self._cancelled, self._runs), CallBatcher(gather_s)
        self._loop_thread = LoopThread("loopline-executor")
        made = _made(self._client, options, session or uuid4().hex, self._pending, max_workers, _LOADS[values], echo)
        self._submitter = self._loop_thread.call(made)
        ends_with_program(self)

    @classmethod
    def local(cls, slots: int | None = None, **options: Any) -> Self:
        """Return an executor with a grid of its own on this computer, which ends with it and with the program.

        ``slots``: calls that run at a time (default: one a core). ``options``: of an Executor, without ``detach``.
        Raises LooplineError if the libraries of master and worker are missing, or one of the two does not start.
        """
        from loopline.local.owned_grid import OwnedGrid  # which few programs need

        check_may_submit()
        if options.get("detach"):
            raise ValueError("a local grid ends with its program, so detach=True is not possible")
        grid = OwnedGrid(slots)
        try:
            executor = cls(grid.url, grid.token, ca="", **options)
        except BaseException:
            grid.stop()
            raise
        executor._stop_grid = grid.stop
        return executor

    @property
    def jobs(self) -> list[int]:
        """Numbers of the jobs that this executor has submitted or attached."""
        return list(self._submitter.jobs)

    @property
    def carried_modules(self) -> tuple[str, ...]:
        """Names of your own modules that went to the workers with the calls so far, without those of ``modules``."""
        return self._submitter.modules.carried.names

    # The interface of concurrent.futures.Executor

    def submit(self, fn: Callable[..., Answer], /, *args: Any, **kwargs: Any) -> GridFuture[Answer]:
        """Call a function on the grid and return its future, as every executor does.

        An argument that is a future stands for its result: the call is sent once that is there, and fails as it does.
        """
        from loopline.functions.future_arguments import AwaitedArguments, are_there

        future = self._pending.new()
        try:
            function, gather, fail = self._pickled(fn), partial(self._gather, future), partial(self._fail, future)
            if are_there((*args, *kwargs.values())):
                future.is_held = True
                AwaitedArguments((args, kwargs), self._modules, partial(gather, function), fail)
            else:
                gather(function, (args, kwargs))
        except Exception as error:  # as in a process pool, the error of pickling is set on the future
            self._fail(future, error)
        return future

    def map(
        self,
        fn: Callable[..., Answer],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Iterator[Answer]:
        """Return the results in order; ``timeout`` is in seconds from now on, for all.

        One task makes ``chunksize`` calls. If it is left out, each call of a short map is a task of its own. Of a
        long map, some calls are made first to see how long they take, and as many go into one task as take about 0.1
        s. In either case each call has its own result or exception.

        ``buffersize``: most tasks under way or with a result that was not taken, as in Python 3.14. The iterables are
        read as results are taken, and may be endless. Without it they are read to their end at once.
        """
        from loopline.functions.future_arguments import are_there
        from loopline.functions.futures import in_order

        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize is not None and chunksize > 1 and self._saves:
            raise ValueError("a call with checkpoints is a task of its own: leave out chunksize")
        end = None if timeout is None else time.monotonic() + timeout
        if buffersize is not None:
            return self._buffered(fn, zip(*iterables, strict=False), buffersize, chunksize or 1, end)
        items = list(islice(zip(*iterables, strict=False), _most_items(iterables) + 1))
        if len(items) > _most_items(iterables):
            hint = "give map(buffersize=...), and they are read as results are taken"
            raise ValueError(f"the iterables have no length, and more than {_MOST_UNSIZED:,} items: {hint}")
        if any(map(are_there, items)):
            return in_order([self.submit(fn, *item) for item in items], None, end)
        if chunksize is None:
            chunksize = 0 if self._chunks_may_vary and len(items) > MOST_SINGLE_CALLS else 1
        futures, rest = self._map(fn, items, chunksize) if items else ([], None)
        return in_order(futures, rest, end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. Without ``wait``, results still come, and the end of the program waits for them.

        ``cancel_futures``: calls that do not run yet are cancelled; those that run end. ``terminate`` cancels all.
        """
        self.refuse("cannot schedule new futures after shutdown")
        if wait and self._loop_thread.is_current:
            raise RuntimeError("a callback of a future cannot wait for the other calls: shutdown(wait=False)")
        if cancel_futures and self._pending.all():
            self._cancel_waiting()
        if self._closing is None:
            self._closing = self._loop_thread.start(self._close_when_done())
            self._closing.add_done_callback(lambda _: self._closed())
        if wait:
            concurrent.futures.wait([self._closing])
            self._loop_thread.close()
            self._stop_grid(True)

    # Additions

    def terminate(self) -> None:
        """Cancel every open call, those that run too, and shut down."""
        self.refuse("cannot schedule new futures after shutdown")
        for future in self._pending.all():
            future.cancel()
        self.shutdown()

    def attach(self, job: int | str) -> list[GridFuture]:
        """Return the futures of a job's calls, in their order, whichever program submitted it.

        ``job``: its number; or its name, for the latest of that name. Raises LooplineError if there is none, or if it
        runs commands.
        """
        number = job if isinstance(job, int) else self._loop_thread.call(_latest(self._client, job))
        view = self._loop_thread.call(self._client.job(number))
        function = view.spec.function
        if function is None:
            raise LooplineError("not_calls", f"job {number} runs commands", "loopline.Client().job() has its results")
        futures = [self._pending.new() for _ in range(function.calls or view.task_count)]
        self._loop_thread.call(self._submitter.follow(number, futures, view.task_count, function))
        return futures

    def slots(self) -> int:
        """Return how many calls the connected workers can make at a time."""
        return self._loop_thread.call(_slots(self._client))

    @property
    def _max_workers(self) -> int | None:
        """Number of calls to keep open, as read by Dask; None without workers: Dask then uses its default.

        Slots that a computer's owner needs just now count: they may be free when the calls get there.
        """
        return self._submitter.max_workers or self._loop_thread.call(_slots(self._client, offered=False)) or None

    # In the caller's thread

    def _buffered(
        self, fn: Callable[..., Any], items: Iterator[tuple[Any, ...]], size: int, chunk: int, end: float | None
    ) -> Iterator[Any]:
        """Submit a map part by part, with the function as it is now."""
        from loopline.functions.future_arguments import are_there
        from loopline.functions.futures import buffered

        if not isinstance(size, int):
            raise TypeError("buffersize must be an integer or None")
        if size < 1:
            raise ValueError("buffersize must be None or > 0")
        function = self._pickled(fn)

        def submit(part: list[tuple[Any, ...]]) -> list[GridFuture]:
            if any(map(are_there, part)):
                return [self.submit(fn, *item) for item in part]
            return self._map(fn, part, chunk, function)[0]

        return buffered(items, size, chunk, submit, end)

    def _map(
        self, fn: Callable[..., Any], items: list[tuple[Any, ...]], chunk: int, pickle: bytes = b""
    ) -> tuple[list[GridFuture], GridFuture | None]:
        """Submit a map, and return the futures of its tasks and one of the futures of the rest.

        ``chunk``: calls of a task; 0: to be found out by making some calls first. ``pickle``: of the function.
        """
        from loopline.functions.calls import all_pickled
        from loopline.functions.futures import Batch

        function, sending = pickle or self._pickled(fn), self._submitter
        if chunk == 1:
            batch = Batch(function, list(all_pickled(((item, {}) for item in items), self._modules)))
            batch.futures = [self._pending.new() for _ in items]
            self._begin(lambda: sending.send(batch))
            return batch.futures, None
        calls = list(all_pickled(items, self._modules))
        first = calls[:PROBED_CALLS] if chunk == 0 else calls
        futures = [self._pending.new() for _ in range(0, len(first), chunk or 1)]
        self._begin(lambda: sending.send_chunks(function, first, futures, chunk or 1))
        if chunk:
            return futures, None
        rest = self._pending.new()
        rest.is_held = True
        self._begin(lambda: sending.send_rest(function, calls[PROBED_CALLS:], futures, rest))
        return futures, rest

    def _gather(self, future: GridFuture, function: bytes, arguments: Arguments) -> None:
        from loopline.functions.calls import pickled

        future.is_held = False
        if self._batcher.add(function, pickled(arguments, self._modules), future):
            self._in_loop(self._submitter.start, self._batcher)

    def _fail(self, future: GridFuture, error: BaseException) -> None:
        self._pending.settled(future)
        future.fail(error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client.master}>"

    def _repr_html_(self) -> str:
        return html_of(type(self).__name__, self._client.master, self.jobs)

    def __reduce__(self) -> Any:
        hint = "submit from your program, or use joblib's or the standard library's pools in a call"
        raise TypeError(f"an Executor cannot travel to a worker: {hint}")

    def _pickled(self, fn: Callable[..., Any]) -> bytes:
        """Return the pickle of a function as it is now, and see to it that the initializer travels with it."""
        from loopline.functions.calls import pickled

        if self._initializer is None:
            return pickled(fn, self._modules)
        if not self._submitter.preparations:
            self._submitter.preparations = (self._initializer.preparation(self._modules),)
        return pickled(self._initializer.around(fn), self._modules)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start the work in the loop's thread, in the order of calls."""
        self._in_loop(lambda: self._submitter.begin(work()))

    def _in_loop(self, work: Callable[..., None], *arguments: object) -> None:
        if not self._loop_thread.is_open:
            raise RuntimeError("it has been closed")
        self._loop_thread.loop.call_soon_threadsafe(self._submitter.protected, work, *arguments)

    def _cancelled(self, future: GridFuture) -> None:
        if self._loop_thread.is_open:
            self._in_loop(_give_up, future)

    def _runs(self, future: GridFuture) -> bool:
        if future.task is None or not self._loop_thread.is_open:
            return False
        return future.task in self._loop_thread.call(self._submitter.running([future.task.job]))

    def _cancel_waiting(self) -> None:
        """Cancel the calls that do not run. Those on their way to the master arrive first, so that it can tell."""
        for future in self._pending.all():
            if future.is_held:
                future.cancel()
        self._loop_thread.call(self._submitter.flush(at_once=True))
        pending = self._pending.all()
        jobs = {future.task.job for future in pending if future.task}
        try:
            running = self._loop_thread.call(self._submitter.running(jobs))
        except LooplineError:  # nobody knows, and what cannot be asked for cannot be waited for
            running = set()
        for future in pending:
            if future.task not in running:
                future.cancel()

    def _closed(self) -> None:
        """End the loop and, without waiting for it, the local grid."""
        self._loop_thread.close()
        self._stop_grid(False)

    # As OpenCalls, at the end of the program

    def refuse(self, why: str) -> None:
        """Take no more calls: ``submit`` and ``map`` raise RuntimeError with this reason."""
        self._pending.close(why)

    def finish(self) -> None:
        """Wait for open calls; with ``detach``, only until the master has them."""
        if not self._detach:
            self.shutdown()
        elif self._pending.all():
            self._loop_thread.start(self._submitter.flush()).result(_FLUSH_WITHIN_S)

    def left(self) -> str:
        """Return a sentence about calls that are still open; empty if there are none."""
        pending = self._pending.all()
        jobs = sorted({future.task.job for future in pending if future.task})
        if not jobs:
            return f"loopline: {len(pending)} calls did not reach the master" if pending else ""
        more = ", ..." if len(jobs) > _MOST_NAMED_JOBS else ""
        names = ", ".join(map(str, jobs[:_MOST_NAMED_JOBS])) + more
        many = "calls continue" if len(pending) > 1 else "call continues"
        hint = f"Executor.attach({jobs[0]}) has its results"
        return f"loopline: {len(pending)} {many} on the grid, in job {names}; {hint}"

    # In the loop's thread

    async def _close_when_done(self) -> None:
        await self._submitter.complete()
        await self._submitter.close()
        await self._client.__aexit__()


def _give_up(future: GridFuture) -> None:
    """Tell the job of a future that was cancelled. Calls cancelled before they are submitted never are."""
    if future.abandon:
        future.abandon(future)


async def _latest(client: AsyncClient, name: str) -> int:
    """Return the number of the latest job of a name. Raises LooplineError if there is none."""
    async for job in client.jobs():
        if job.name == name:
            return job.id
    raise LooplineError("not_found", f"there is no job {name!r}", "`loopline jobs` lists names and numbers", 404)


async def _slots(client: AsyncClient, *, offered: bool = True) -> int:
    """Return the slots of the connected workers: those offered now, or all."""
    workers = [worker async for worker in client.workers() if worker.connected]
    return sum(worker.slots if offered else worker.facts.slots for worker in workers)


async def _made(
    client: AsyncClient,
    options: CallOptions,
    session: str,
    pending: PendingFutures,
    max_workers: int | None,
    loads: Loads,
    echo: bool | None,
) -> CallSubmitter:
    """Make the submitter in the loop in which it will live."""
    from loopline.echo import is_notebook
    from loopline.functions.call_submitter import CallSubmitter

    echoes = is_notebook() if echo is None else echo
    return CallSubmitter(client, options, session, pending, max_workers, loads=loads, echoes=echoes)


def _most_items(iterables: Sequence[Iterable[Any]]) -> int:
    """Return how many items a map reads at once: generators may be endless."""
    return sys.maxsize - 1 if any(isinstance(one, Sized) for one in iterables) else _MOST_UNSIZED


def _check(max_workers: int | None, initializer: object, detach: bool, values: str, order: str) -> None:
    """Raise ValueError or TypeError, in the words of the standard library; LooplineError in a call on a worker."""
    check_may_submit()
    if max_workers is not None and max_workers <= 0:
        raise ValueError("max_workers must be greater than 0")
    if initializer is not None and not callable(initializer):
        raise TypeError("initializer must be a callable")
    if detach and max_workers is not None:
        raise ValueError("calls beyond max_workers wait in this program: it cannot detach from them")
    if values not in _LOADS:
        raise ValueError(f"values are {' or '.join(_LOADS)}")
    if order not in ("session", "hold"):
        raise ValueError(f"order is session or hold, not {order}")
