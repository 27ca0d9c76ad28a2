"""Users in virtual time: they submit jobs, ask again after a lost answer, and pause, cancel or retry jobs."""

from __future__ import annotations

from collections.abc import Iterable

from loopline_shared.spec import JobSpec
from loopline_simulator.fast.world import Arrival
from loopline_simulator.full.grid_world import GridWorld
from loopline_simulator.full.network import FrameListener
from loopline_simulator.kernel import Call, Kernel
from loopline_simulator.streams import stream

_VERBS = ("pause", "pause", "cancel", "retry", "retry")
_MEAN_PAUSE_S = 30.0
_ASK_AGAIN_S = 5.0


class Users:
    """All users together; ``are_content`` once every job has been submitted."""

    def __init__(
        self, seed: int, kernel: Kernel, world: GridWorld, ends: FrameListener, arrivals: Iterable[Arrival]
    ) -> None:
        self._kernel, self._world, self._ends = kernel, world, ends
        self._random = stream(seed, "users")
        self._to_come = 0
        self._asked: dict[str, JobSpec] = {}  # by idempotency key
        for number, arrival in enumerate(arrivals, start=1):
            self._to_come += 1
            kernel.at(arrival.at, self._arriving(f"job-{number}", arrival.spec))

    @property
    def are_content(self) -> bool:
        return not self._to_come and len(self._world.answers) == len(self._asked)

    def ask_again(self) -> None:
        """Submit again after a restart of the master. If it had accepted a job without an answer, its store knows the
        key.
        """
        known = {job.idempotency_key: job for job in self._world.store.jobs.values()}
        for key, spec in self._asked.items():
            if key in self._world.answers:
                continue
            if key in known:
                self._world.repeat_submission(known[key])
            else:
                self._world.submit(spec, key)
        self._ends.master_heard()

    def steer_one(self) -> None:
        """Pause, cancel or retry some job."""
        jobs = sorted(self._world.store.jobs)
        verb = str(self._random.choice(_VERBS))
        if not jobs or not self._world.is_up:
            return
        job_id = int(self._random.choice(jobs))
        self._world.steer(verb, job_id)
        self._ends.master_heard()
        if verb == "pause":
            self._later(float(self._random.exponential(_MEAN_PAUSE_S)), lambda: self._resume(job_id))

    def _arriving(self, key: str, spec: JobSpec) -> Call:
        def arrive() -> None:
            self._to_come -= 1
            self._asked[key] = spec
            if self._world.is_up:
                self._world.submit(spec, key)
                self._ends.master_heard()

        return arrive

    def _resume(self, job_id: int) -> None:
        """Resume the job; ask again until the master has received it."""
        if self._world.store.jobs[job_id].paused:
            self._world.steer("resume", job_id)
            self._ends.master_heard()
            self._later(_ASK_AGAIN_S, lambda: self._resume(job_id))

    def _later(self, seconds: float, call: Call) -> None:
        self._kernel.at(self._kernel.now + seconds, call)
