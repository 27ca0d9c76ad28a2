"""Many runs at once on any ``concurrent.futures.Executor``: all cores, a Dask cluster, or a Loopline grid.

The function to run must be a module's own and its arguments must be picklable. Results come in the order of the
items, whichever finishes first: the same seeds give the same bytes on any number of processes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

from loopline_shared.errors import LooplineError

Item = TypeVar("Item")
Answer = TypeVar("Answer")
MakeExecutor = Callable[[], AbstractContextManager[Executor]]
"""A function that opens an executor as a context manager: ``lambda: some_executor`` will do."""


def sweep(
    run: Callable[[Item], Answer],
    items: Sequence[Item],
    make_executor: MakeExecutor,
    progress: Callable[[Answer], None] = lambda answer: None,
) -> list[Answer]:
    """Return ``run`` of every item; ``progress`` is called with each answer as it comes.

    An interrupted sweep cancels everything that it started.
    """
    done: SimpleQueue[Future[Answer]] = SimpleQueue()
    with make_executor() as executor:
        futures: list[Future[Answer]] = []
        try:
            for item in items:
                with _interrupted_only_afterwards():
                    futures.append(executor.submit(run, item))
                    futures[-1].add_done_callback(done.put)
            for _ in futures:
                progress(done.get().result())
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return [future.result() for future in futures]


def on_cores(processes: int | None = None) -> MakeExecutor:
    """Run on this computer's cores, or in ``processes`` processes; a single one runs as a thread of this process."""
    count = processes or available_cores()
    return lambda: ThreadPoolExecutor(1) if count == 1 else _pool(count)


def on_dask(address: str) -> MakeExecutor:
    """Run on a Dask cluster, given its scheduler's address (``tcp://...:8786``)."""
    return lambda: _dask(address)


def on_grid() -> MakeExecutor:
    """Run on the Loopline grid of the client commands."""
    return _grid


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _pool(processes: int) -> Iterator[Executor]:
    """Open fresh worker processes; an interruption terminates them instead of waiting."""
    before = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, spawn, initializer=_leave_interrupts_to_the_parent)
    try:
        yield pool
    except BaseException:
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupted_only_afterwards() -> Iterator[None]:
    """Delay an interruption until the block has ended.

    An interruption that strikes an executor while it accepts work would leave a queue's lock held for ever, and a
    process that the executor does not know of.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    struck: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: struck.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        for number in struck[:1]:
            signal.raise_signal(number)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _grid() -> Iterator[Executor]:
    from loopline import Executor as GridExecutor  # only the client is imported

    with GridExecutor(name="simulate") as executor:
        try:
            yield executor
        except BaseException:  # cancel the calls on the grid
            executor.shutdown(cancel_futures=True)
            raise


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError:
        hint = "install it: pip install 'loopline[dask]'"
        raise LooplineError("not_installed", "Dask is not installed", hint) from None
    try:
        client: Any = Client(address, timeout=10)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        hint = "give its scheduler's address, such as tcp://127.0.0.1:8786"
        raise LooplineError("unreachable", f"no Dask scheduler answers at {address}: {error}", hint) from None
    with client, client.get_executor() as executor:
        yield executor
