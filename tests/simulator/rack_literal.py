"""The rack as its paper tells it, word for word and cell by cell: no kernel, no bits, no shortcuts. What the fast one
is held against.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from loopline_simulator.papers.rack.workload import RackJob


@dataclass
class Box:
    job: RackJob
    start: int
    x: int
    y: int
    end: int  # that the plan reckons with; cut when the job ends


@dataclass
class LiteralRack:
    """``offsets`` of one scan: naive counts by one. Each announced plan (job, time, start, x, y) and call is kept."""

    width: int
    height: int
    steps: tuple[int, int, int]  # first, base, count
    boxes: dict[int, Box] = field(default_factory=dict)
    told: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    calls: int = 0

    def run(self, jobs: Sequence[RackJob]) -> None:
        running: set[int] = set()
        waiting: set[int] = set()
        done: set[int] = set()
        for now in count():
            if len(done) == len(jobs):
                return
            ended = [number for number in running if now == self.boxes[number].start + self.boxes[number].job.runs]
            for number in ended:
                running.remove(number)
                done.add(number)
                self.boxes[number].end = now
            if ended:
                self._pass_over(waiting, now)
            for job in jobs:
                if job.arrival == now:
                    self._place(job, now, None)
                    waiting.add(job.number)
            for number in sorted(waiting):
                if self.boxes[number].start == now:
                    waiting.remove(number)
                    running.add(number)

    def _pass_over(self, waiting: set[int], now: int) -> None:
        for number in sorted(waiting, key=lambda number: (self.boxes[number].start, number)):
            old = self.boxes.pop(number)
            if not self._place(old.job, now, old.start):
                self.boxes[number] = old

    def _place(self, job: RackJob, now: int, before: int | None) -> bool:
        for offset in self._offsets():
            start = now + offset
            if before is not None and start >= before:
                return False
            self.calls += 1
            place = self._bottom_left(job, start)
            if place is not None:
                self.boxes[job.number] = Box(job, start, *place, start + job.limit)
                self.told.append((job.number, now, start, *place))
                return True
        raise AssertionError

    def _offsets(self) -> Iterator[int]:
        first, base, steps = self.steps
        offset, step = 0, first
        while True:
            for _ in range(steps):
                yield offset
                offset += step
            step *= base

    def _bottom_left(self, job: RackJob, start: int) -> tuple[int, int] | None:
        for y in range(self.height - job.height + 1):
            for x in range(self.width - job.width + 1):
                if all(self._clear(job, x, y, start, box) for box in self.boxes.values()):
                    return x, y
        return None

    @staticmethod
    def _clear(job: RackJob, x: int, y: int, start: int, box: Box) -> bool:
        apart_in_time = box.end <= start or start + job.limit <= box.start
        beside = box.x + box.job.width <= x or x + job.width <= box.x
        above = box.y + box.job.height <= y or y + job.height <= box.y
        return apart_in_time or beside or above
