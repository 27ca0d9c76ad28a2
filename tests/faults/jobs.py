"""The jobs of a campaign, drawn by its seed, each with the expected outputs of its tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from loopline_shared.job.parameters import Range
from loopline_shared.spec import JobSpec

SIZES = (2.0, 2.0, 5.0, 5.0, 10.0, None)
"""Few different sizes, so that many are equal: no job may pass an earlier one that is not larger."""
STAYS = "setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' &"
"""Shell code that starts a daemon which ignores signals; it must still end with its task."""


@dataclass
class Drawn:
    """A submitted job with the records about it."""

    spec: JobSpec
    tasks: int
    brings: Callable[[int], str]  # a task's stdout
    files: dict[str, Callable[[int], bytes]] = field(default_factory=dict)  # its output files
    id: int = 0
    sent_at: float = 0.0
    acknowledged_at: float = 0.0

    @property
    def size(self) -> float:
        return float("inf") if self.spec.size is None else float(self.spec.size)


def draw(chance: Random, name: str) -> Drawn:
    """Draw one of the kinds below."""
    return chance.choice((_prints, _prints, _prints_much, _writes_a_file, _fails_at_first, _leaves_a_daemon))(
        chance, name
    )


def job(name: str, script: str, tasks: int, chance: Random, **options: object) -> JobSpec:
    """Return a job of shell scripts, in which ``{i}`` is the task's number."""
    given = {"size": chance.choice(SIZES), "max_attempts": 20} | options
    return JobSpec(
        name=name,
        command=["sh", "-c", script],
        parameters={"i": Range(range=[1, tasks])},
        **given,  # type: ignore[arg-type]
    )


def _pause(chance: Random) -> str:
    return f"sleep {chance.choice((0.02, 0.1, 0.3, 0.8))}"


def _prints(chance: Random, name: str) -> Drawn:
    tasks = chance.randint(1, 12)
    return Drawn(job(name, f"{_pause(chance)}; echo {name} {{i}}", tasks, chance), tasks, lambda i: f"{name} {i}\n")


def _prints_much(chance: Random, name: str) -> Drawn:
    """Output long enough to be a file, which is uploaded before the result."""
    tasks, count = chance.randint(1, 4), chance.choice((5_000, 70_000, 300_000))
    spec = job(name, f"{_pause(chance)}; yes '{name} {{i}}' | head -c {count}", tasks, chance)
    return Drawn(spec, tasks, lambda i: repeated(f"{name} {i}\n", count))


def _writes_a_file(chance: Random, name: str) -> Drawn:
    tasks, count = chance.randint(1, 4), chance.choice((10, 100_000))
    script = f"{_pause(chance)}; yes '{name} {{i}}' | head -c {count} > made; echo {{i}}"
    files = {"made": lambda i: repeated(f"{name} {i}\n", count).encode()}
    return Drawn(job(name, script, tasks, chance, outputs=["made"]), tasks, lambda i: f"{i}\n", files)


def _fails_at_first(chance: Random, name: str) -> Drawn:
    tasks = chance.randint(1, 5)
    script = f"[ ${{LOOPLINE_ATTEMPT##*.}} -gt 1 ] || exit 3; echo {name} {{i}}"
    return Drawn(job(name, script, tasks, chance), tasks, lambda i: f"{name} {i}\n")


def _leaves_a_daemon(chance: Random, name: str) -> Drawn:
    tasks = chance.randint(1, 4)
    script = f"{STAYS} {_pause(chance)}; echo {name} {{i}}"
    return Drawn(job(name, script, tasks, chance), tasks, lambda i: f"{name} {i}\n")


def race(chance: Random, name: str) -> Drawn:
    """Draw tasks whose first attempts are so slow that replicas win."""
    script = f"{STAYS} [ ${{LOOPLINE_ATTEMPT##*.}} -gt 1 ] || sleep 40; echo {name} {{i}}"
    return Drawn(job(name, script, 2, chance, max_replicas=2, size=None), 2, lambda i: f"{name} {i}\n")


def repeated(line: str, count: int) -> str:
    """Return what `yes LINE | head -c COUNT` prints."""
    return (line * (count // len(line) + 1))[:count]


def digest(data: bytes) -> str:
    return f"{len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()[:12]}"
