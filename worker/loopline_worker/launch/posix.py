"""Launching on POSIX: one zygote, and below it a supervisor for each slot, kept from task to task."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from loopline_worker.host import descriptors
from loopline_worker.launch import delegation
from loopline_worker.launch.interface import Job, PrefetchListener
from loopline_worker.launch.process_tree import PosixTree
from loopline_worker.launch.sinks import Sink, Target, opened
from loopline_worker.launch.supervisor_link import SupervisorLink
from loopline_worker.supervisor import family, processes
from loopline_worker.supervisor.control_groups import Places
from loopline_worker.supervisor.orders import Claims, TaskOrder
from loopline_worker.supervisor.requests import ZygoteLine
from loopline_worker.timings import LAST_TASK_SHARE, LONGEST_COUNTED_S, PREFETCH_S, SLOW_TASK_S, SUPERVISOR_IDLE_S

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId
    from loopline_worker.launch.sandbox import Sandbox

_HOME = Path(__file__).parents[2]
_PROGRAM = (
    f"import sys; sys.path.append({str(_HOME)!r}); "
    "from loopline_worker.supervisor.zygote import main; main(int(sys.argv[1]))"
)
_NEEDED = ("LD_LIBRARY_PATH",)  # by some builds of Python; nothing else, the agent's token least of all
_MOST_PREFETCHED = 16
"""Tasks that are prefetched at one supervisor at most."""


class PosixLauncher:
    """Keeps the zygote and the links to supervisors. A supervisor that was killed is replaced at the next start."""

    def __init__(self, yields: bool, sandbox: Sandbox | None = None, given: ZygoteLine | None = None) -> None:
        """``given``: the line to a zygote that a service has started, which runs tasks as users of their own."""
        self._given = given
        self._yields = yields
        self._sandbox = sandbox
        self._claimed_places: Places | None = None
        self._users_threads = _UsersThreads()
        self._durations = DurationEstimate()
        self._process: subprocess.Popen[bytes] | None = None
        self._zygote: ZygoteLine | None = None
        self._idle: dict[SupervisorLink, float] = {}  # since when; the last to have become so comes last
        self._links: set[SupervisorLink] = set()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._cpu_s = 0.0

    @property
    def prefetching(self) -> PosixLauncher:
        """The launcher itself, which can prefetch."""
        return self

    async def start(self, job: Job, stdout: Target, stderr: Target, name: AttemptId | None = None) -> PosixTree:
        """Start a task and return its tree, which the caller awaits."""
        if job.pipes_output or isinstance(stdout, int) or isinstance(stderr, int):
            async with opened(stdout, stderr) as files:
                return self._start(self._tree(job, ()), files)
        return self._start(self._tree(job, (stdout, stderr), name if job.makes_folder else None))

    def prefetch(
        self, listener: PrefetchListener, name: AttemptId, job: Job, stdout: Sink, stderr: Sink
    ) -> PosixTree:
        """Prefetch a task, where fewest are prefetched."""
        links = self._links_with_short_task() or self._busy_links()
        if not links:
            raise OSError("the zygote was killed just now")
        tree = self._tree(job, (stdout, stderr), name, listener)
        min(links, key=lambda link: link.prefetched).prefetch(tree)
        return tree

    def room(self) -> int:
        """Return how many more tasks may be prefetched; none behind a task that has run for long already."""
        if not (depth := self._durations.prefetch_depth()):
            return 0
        return sum(max(0, depth - link.prefetched) for link in self._links_with_short_task())

    def retract(self) -> None:
        """Retract prefetched tasks, from all links at once, so that they return in order of arrival."""
        trees = [tree for link in self._links for tree in link.retract()]
        for tree in trees:
            tree.retracted()
        for listener in {tree.listener for tree in trees if tree.listener}:
            listener.returned([tree.name for tree in trees if tree.listener is listener and tree.name])

    def prepare(self) -> None:
        """Have a supervisor idle, with its zygote; if there can be none, the first task says so."""
        with suppress(OSError):
            self.link_idle(self._idle_link())

    def cpu_s(self) -> float:
        """Return the CPU time of the zygote."""
        with suppress(OSError):  # no file descriptor left: as it was
            process = processes.status(self._process.pid) if self._process else None
            self._cpu_s = process.cpu_s if process else 0.0
        return self._cpu_s

    def close(self) -> None:
        """Hang up: supervisors kill the commands that still run, and the zygote ends after the last of them."""
        self._hang_up()
        for link in self._busy_links():
            self.drop(link)

    # Supervisors.

    def _tree(
        self, job: Job, sinks: Sequence[Sink], name: AttemptId | None = None, listener: PrefetchListener | None = None
    ) -> PosixTree:
        return PosixTree(self._order(job), sinks, job.limits, yields=self._yields, name=name, listener=listener)

    def _start(self, tree: PosixTree, files: Sequence[int] = ()) -> PosixTree:
        link = self._idle_link()
        try:
            link.start(tree, files)
        except OSError:
            self.drop(link)
            raise
        tree.started()
        return tree

    def _idle_link(self) -> SupervisorLink:
        """Return the link to an idle supervisor, or to a new one. Raises OSError if there can be none."""
        if self._idle:
            return self._idle.popitem()[0]
        with ExitStack() as on_failure:
            ours, theirs = socket.socketpair()
            on_failure.callback(ours.close)
            with theirs:
                claims = Claims()
                on_failure.callback(claims.close)
                self._ask_zygote(theirs.fileno(), claims.supervisors_end)
            on_failure.pop_all()
        for_users = (self._signal, self._given.lessor) if self._given else (None, None)
        link = SupervisorLink(ours, claims, self._places, self, *for_users)
        self._links.add(link)
        return link

    def _busy_links(self) -> list[SupervisorLink]:
        """Return the links that can prefetch a task behind their current one."""
        return [link for link in self._links if (first := link.first) and first.name]

    def _links_with_short_task(self) -> list[SupervisorLink]:
        """Return the busy links whose task has not run for long."""
        long_ago = time.monotonic() - SLOW_TASK_S
        links = self._links
        return [one for one in links if (first := one.first) and first.name and first.started_at > long_ago]

    def _ask_zygote(self, *files: int) -> None:
        """Have the zygote fork a supervisor with these files; start a zygote if there is none."""
        if self._zygote:
            with suppress(ConnectionError):
                self._zygote.fork(*files)
                return
            self._lose_zygote()
        self._start_zygote().fork(*files)

    # Reports by links.

    def task_ended(self, tree: PosixTree, elapsed_s: float | None) -> None:
        """Learn from the task's duration, and retract what waits behind a task that runs for long after all."""
        if tree.name and elapsed_s is not None:
            self._durations.add(elapsed_s)
        long_ago = time.monotonic() - SLOW_TASK_S
        if any(link.prefetched and link.started_at <= long_ago for link in self._links):
            self.retract()

    def link_idle(self, link: SupervisorLink) -> None:
        """Keep the supervisor for the next task."""
        if self._zygote is None or link not in self._links:
            self.drop(link)
            return
        self._idle[link] = time.monotonic()
        if self._idle_timer is None:
            self._start_idle_timer()

    def drop(self, link: SupervisorLink) -> None:
        """Close a link for good."""
        link.close()
        self._idle.pop(link, None)
        self._links.discard(link)

    def _start_idle_timer(self) -> None:
        self._idle_timer = asyncio.get_running_loop().call_later(SUPERVISOR_IDLE_S, self._drop_idle)

    def _drop_idle(self) -> None:
        """Drop supervisors that have been idle for long."""
        self._idle_timer = None
        long_ago = time.monotonic() - SUPERVISOR_IDLE_S
        for link in [link for link, since in self._idle.items() if since <= long_ago]:
            self.drop(link)
        if self._idle:
            self._start_idle_timer()

    # The zygote.

    def _start_zygote(self) -> ZygoteLine:
        if self._given and self._given.is_closed:
            raise OSError("the service's supervisor is gone")
        self._zygote = self._given or ZygoteLine(self._start_own_zygote())
        self._zygote.configure(self._yields, self._sandbox is not None, self._places)
        family.load()
        asyncio.get_running_loop().add_reader(self._zygote.connection.fileno(), self._lose_zygote)
        return self._zygote

    def _start_own_zygote(self) -> socket.socket:
        if self._process:
            self._process.poll()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], cwd="/", start_new_session=True,
                env={name: os.environ[name] for name in _NEEDED if name in os.environ},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        descriptors.restore_limit(self._process.pid)
        return ours

    def _lose_zygote(self) -> None:
        """The zygote was killed. Nothing watches its supervisors any more, so each goes when its task has ended."""
        self.retract()
        self._hang_up()
        self._links.clear()

    def _signal(self, root: int, signum: int, only: Sequence[int] = ()) -> int:
        """Have the zygote signal processes below one, for they are not this user's. Return how many are below it."""
        if self._zygote:
            self._zygote.signal(root, signum, only)
        return len(processes.descendants(root))

    def _hang_up(self) -> None:
        if self._zygote:
            asyncio.get_running_loop().remove_reader(self._zygote.connection.fileno())
            self._zygote.connection.close()
        self._zygote = None
        for link in list(self._idle):
            self.drop(link)

    @property
    def _places(self) -> Places:
        """Folders for the control groups of supervisors, claimed for the first one."""
        if self._claimed_places is None:
            self._claimed_places = delegation.claim(self._yields) if sys.platform == "linux" else {}
        return self._claimed_places

    def _order(self, job: Job) -> TaskOrder:
        limits, threads = job.limits, None
        if limits.processes and "pids" not in self._places:  # stops what is faster than the watch
            threads = self._users_threads.now() + 2 * limits.processes
        order = TaskOrder(
            list(job.command),
            job.folder,
            job.environment,
            makes_folder=job.makes_folder,
            memory_bytes=limits.memory_bytes,
            processes=limits.processes,
            file_bytes=limits.scratch_bytes,
            user_threads=threads,
            ends_at=job.ends_at,
            has_gpus=bool(job.gpus),
        )
        if self._sandbox:
            walls = self._sandbox.walls(job, has_user=self._given is not None)
            order.cell, order.walls, order.places, order.paths, order.reaches, order.open_hosts = walls
        return order


class _UsersThreads:
    """Number of this user's threads, remembered for some seconds because counting takes milliseconds."""

    _GOOD_FOR_S = 5.0

    def __init__(self) -> None:
        self._count = 0
        self._counted_at = -math.inf

    def now(self) -> int:
        """Return the number."""
        if time.monotonic() - self._counted_at > self._GOOD_FOR_S:
            self._count, self._counted_at = processes.threads_of_user(), time.monotonic()
        return self._count


class DurationEstimate:
    """Exponentially weighted mean of the durations of tasks."""

    def __init__(self) -> None:
        self._mean_s = LONGEST_COUNTED_S

    def add(self, seconds: float) -> None:
        """Note the run time of a task."""
        self._mean_s += LAST_TASK_SHARE * (min(seconds, LONGEST_COUNTED_S) - self._mean_s)

    def prefetch_depth(self) -> int:
        """Return how many tasks one supervisor is expected to complete within ``PREFETCH_S``."""
        return min(_MOST_PREFETCHED, int(PREFETCH_S / max(self._mean_s, PREFETCH_S / _MOST_PREFETCHED)))
