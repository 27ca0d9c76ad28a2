"""Many runs at once, on any ``concurrent.futures.Executor``: all cores, a Dask cluster, or a grid.

What is run must be a module's own function, and its arguments such as can be pickled. Results come in the order of
the items, whatever finishes first: the same seeds give the same bytes on any number of processes.
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
"""Opens an executor, and closes it on leaving: ``lambda: some_executor`` will do."""


def sweep(
    run: Callable[[Item], Answer],
    items: Sequence[Item],
    make_executor: MakeExecutor,
    progress: Callable[[Answer], None] = lambda answer: None,
) -> list[Answer]:
    """``run`` of every item; ``progress`` is shown each answer as it comes. Interrupted, it leaves nothing
    running.
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
    """This computer's cores, or as many processes; a single one is a thread of this one."""
    count = processes or available_cores()
    return lambda: ThreadPoolExecutor(1) if count == 1 else _pool(count)


def on_dask(address: str) -> MakeExecutor:
    """A Dask cluster, by its scheduler's address (``tcp://...:8786``)."""
    return lambda: _dask(address)


def on_grid(master: str | None = None) -> MakeExecutor:
    """A Loopline grid, by its master's address; as whom and, by default, where: as every command of its client."""
    return lambda: _grid(master)


def available_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _pool(processes: int) -> Iterator[Executor]:
    """New processes that share nothing with this one; when interrupted, they are ended rather than waited for."""
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
    """An interruption waits until what is done here is done. One that strikes an executor as it takes something in
    leaves a lock of its queue taken for ever, and a process that it has just begun unknown to it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # interruptions strike elsewhere
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
def _grid(master: str | None) -> Iterator[Executor]:
    from loopline import Executor as GridExecutor  # the client, and nothing of the daemons

    with GridExecutor(master, name="simulate") as executor:
        try:
            yield executor
        except BaseException:  # nothing of it goes on over there
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
