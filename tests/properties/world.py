"""The full world, driven verb by verb, and brought to its end: after any faults, it recovers once they stop."""

from __future__ import annotations

from loopline_master.core.kernel.effects import Effects
from loopline_shared.model import Outcome
from loopline_simulator.full.grid_world import GridWorld
from loopline_simulator.full.machine import Machine
from loopline_simulator.full.machine_files import SIZE_BYTES

__all__ = ["Machine", "World"]


class World(GridWorld):
    has_failed = False
    """A turn has raised an error: to settle would hide it behind another one."""

    def turn(self, crash: str = "") -> Effects | None:
        """Take a turn, and note an error."""
        try:
            return super().turn(crash)
        except BaseException:
            self.has_failed = True
            raise

    def settle(self) -> None:
        """Heal everything, let every process end well, and see that nothing is left.

        Links that are half open because a frame was lost are reopened, as an agent does that gets no answer.
        """
        for name, machine in self.machines.items():
            machine.in_use = False
            self.drain(name, draining=False)
            self.cut(name, noticed=False)
        for job in list(self.store.jobs.values()):
            if not job.is_over:
                self.steer("resume", job.id)
        self.master_steps()
        for _ in range(40 + 12 * self._work_left()):
            if self.is_over() and not any(machine.files.fetching for machine in self.machines.values()):
                break
            self._one_quiet_round()
        self.check_the_end()
        self.check_files_came()

    def receive_files(self, name: str, count: int) -> None:
        """Receive bytes of all files that a machine fetches and need not wait for."""
        files = self.machines[name].files
        for file in list(files.fetching):
            order = files.orders.get(file)
            assert order is None or name not in [source.worker for source in order.sources]
            if order is not None and not order.waits:
                files.receive(file, count)

    def check_files_came(self) -> None:
        """Nobody waits for ever, and nothing is planned when all is there."""
        left = {name: machine.files.fetching for name, machine in self.machines.items() if machine.files.fetching}
        assert not left, f"these files never came: {left}"

    def _work_left(self) -> int:
        jobs = [job for job in self.store.jobs.values() if not job.is_over]
        each = ((job, job.max_attempts + (job.spec.quorum or 0)) for job in jobs)
        return sum(job.task_count * attempts * (2 if job.nodes > 1 else 1) for job, attempts in each)

    def _one_quiet_round(self) -> None:
        self.now += 1
        for job in list(self.store.jobs.values()):
            if any(self.store.jobs[one].state in ("failed", "cancelled") for one in job.waiting_for):
                self.steer("cancel", job.id)  # it would wait for ever
        for name, machine in self.machines.items():
            if machine.link is None:
                self.connect(name)
            for attempt in list(machine.processes)[:1]:
                machine.end(attempt, Outcome.SUCCEEDED)
            self.receive_files(name, SIZE_BYTES)
            machine.report()
            while machine.link is not None and machine.link.up:
                self.deliver_up(name)
        self.master_steps()
        self.planner_answers()
        self.master_steps()
        for name, machine in self.machines.items():
            while machine.link is not None and machine.link.down:
                self.deliver_down(name)
