"""``loopline doctor``: shows what a worker can see and do on this computer."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from loopline_shared.configuration.settings_source import unknown_variables
from loopline_shared.errors import LooplineError
from loopline_shared.terminal.parser import Parser
from loopline_worker.core.owner_policy import Signs, decide
from loopline_worker.energy import choice as energy
from loopline_worker.environments import image_tool, uv
from loopline_worker.functions.python import find as find_python
from loopline_worker.gpus.known_gpus import KnownGpus
from loopline_worker.gpus.local_gpus import LocalGpu, find_gpus, why_not_offered
from loopline_worker.host import speed
from loopline_worker.host.computer import Computer, is_contained, processor
from loopline_worker.host.layout import layout
from loopline_worker.host.load import Battery, Meter, Pressure
from loopline_worker.host.surroundings import check_proc, inherited_limits
from loopline_worker.launch.abilities import Ability, abilities
from loopline_worker.launch.sandbox import NO_SANDBOX, WORDS, kind_here
from loopline_worker.owner.preferences import in_words, preferences_of
from loopline_worker.presence.idle_detector import IdleDetector, Idleness, judge, open_idle_detector
from loopline_worker.presence.probe import Reading
from loopline_worker.presence.waiting.in_asyncio import run
from loopline_worker.settings import SandboxChoice, WorkerSettings
from loopline_worker.task_group import TaskGroup

_LISTEN_S = 0.5
"""Time for probes to connect, and for measuring the load."""
_TEST_LIMIT_S = 60.0
_LOOK_EVERY_S = 0.05
_CALM_S = 1.5
"""Time without input before the self-test asks for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The state of this computer now."""

    probes: list[Reading]
    in_use_says: str  # the probe that decides, or why no probe can tell
    idle_s: float | None
    slots: int  # that a worker with these settings would offer now
    why: str
    spare_cpu: float
    cores: float
    speed: float
    pressure: Pressure
    on_battery: bool
    limits: list[Ability]
    gpus: list[Ability]  # a worker with these settings offers them, or why it does not
    peers: Ability  # files may go between this worker and others
    preferences: list[str]
    layout: str = ""  # the share that owners' programs keep of a core contended by tasks

    def to_json(self) -> dict[str, Any]:
        """Return the findings for a program."""
        return asdict(self) | {"probes": [each._asdict() for each in self.probes]}


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Result of the self-test: how soon an input was seen."""

    seen: bool
    by: str = ""
    after_s: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments)
    if options.sandbox:
        return _tell_of_sandbox()
    try:
        check_proc()
        settings = WorkerSettings.load(data_dir=options.data_dir, policy=options.policy)
    except LooplineError as error:
        print(f"error: {error.message}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
        return 2
    findings, test = asyncio.run(_examine(settings, options.self_test, options.json))
    if options.json:
        document: dict[str, Any] = findings.to_json() | ({"self_test": asdict(test)} if test else {})
        print(json.dumps(document, indent=2))
    else:
        print(in_text(findings))
        if test:
            print(f"\n{_test_words(test)}")
    return 1 if test and not test.seen else 0


def _tell_of_sandbox() -> int:
    """Print the kind of sandbox of a worker here, with its meaning, as JSON."""
    kind, reason = kind_here()
    print(json.dumps({"sandbox": kind, "means": WORDS[kind], "reason": reason, "contained": is_contained()}))
    return 0


def in_text(found: Findings) -> str:
    """Return the findings as text."""
    lines = ["last use of this computer"]
    lines += [_mark(reading.idle_s is not None, reading.probe, _reading_words(reading)) for reading in found.probes]
    lines += [f"  Result: {_idle_words(found)}", "", "this computer"]
    lines += [
        f"  {found.spare_cpu:.1f} of {found.cores:g} cores spare, each of speed {found.speed:.2f}",
        f"  {_pressure_words(found.pressure)}",
        *([f"  {found.layout}"] if found.layout else []),
        f"  {'on battery' if found.on_battery else 'not on battery'}",
        "", "available limits",
    ]  # fmt: skip
    lines += [_mark(ability.has, ability.name, ability.detail) for ability in found.limits] or ["  not known"]
    lines += ["", "GPUs", *(_mark(gpu.has, gpu.name, gpu.detail) for gpu in found.gpus)] if found.gpus else []
    lines += ["", "files between workers", _mark(found.peers.has, found.peers.name, found.peers.detail)]
    lines += ["", "when tasks of a worker with these settings run", *(f"  {words}" for words in found.preferences)]
    lines += [f"  Result: {found.slots} slots now" + (f", because {found.why}" if found.why else "")]
    return "\n".join(lines)


async def _examine(settings: WorkerSettings, tests: bool, quietly: bool) -> tuple[Findings, SelfTest | None]:
    detector = open_idle_detector()
    async with TaskGroup() as task_group:
        for listening in detector.listen(lambda: None):
            task_group.start(run(listening))
        try:
            findings = await _find(settings, detector)
            return findings, await _test(detector, quietly) if tests else None
        finally:
            detector.close()


async def _find(settings: WorkerSettings, detector: IdleDetector) -> Findings:
    computer = Computer.here()
    meter = Meter(computer)
    meter.sample(time.process_time())
    await asyncio.sleep(_LISTEN_S)
    meter.sample(time.process_time())
    readings = detector.readings()
    combined, battery = judge(readings), Battery().is_in_use()
    preferences, most = preferences_of(settings, computer.memory_bytes()), settings.slots or computer.cpus
    now = time.localtime()
    signs = Signs(
        computer.cores,
        meter.spare_cpu,
        idle_s=combined.idle_s,
        memory_available_bytes=computer.memory_available_bytes(),
        on_battery=battery,
        is_time=settings.dedicated or settings.hours.include(now.tm_wday, now.tm_hour * 60 + now.tm_min),
    )
    decision = decide(preferences, signs, most, most)
    limits = [*abilities(), _inherited(), _variables(), _functions(settings)]
    return Findings(
        probes=readings,
        in_use_says=combined.by,
        idle_s=combined.idle_s,
        slots=decision.slots,
        why=decision.why,
        spare_cpu=round(meter.spare_cpu, 2),
        cores=computer.cores,
        speed=_speed(settings, computer),
        pressure=Pressure.now(),
        on_battery=battery,
        limits=[*limits, *_software(settings), *_planner(), await energy.ability(settings)],
        gpus=gpus_of(settings, KnownGpus(settings.data_dir / "gpus.json").complete(find_gpus()), kind_here()[0]),
        peers=_peers(settings),
        preferences=in_words(settings, preferences),
        layout=layout().words,
    )


def _inherited() -> Ability:
    found = inherited_limits()
    return Ability("no limits inherited that end tasks", not found, "; ".join(found))


def _variables() -> Ability:
    found = unknown_variables(WorkerSettings)
    return Ability("no unknown LOOPLINE_ variables", not found, "; ".join(found))


def _functions(settings: WorkerSettings) -> Ability:
    try:
        python = find_python(settings.python)
    except LooplineError as error:
        return Ability("functions", False, error.message)
    detail = python.obstacle or f"under Python {python.version}"
    return Ability("functions", not python.obstacle, f"{detail} ({python.program})")


def _software(settings: WorkerSettings) -> list[Ability]:
    """Return whether the programs are here that provide packages and images for tasks."""
    installer, unpacker = uv.find(settings.fetch_pythons), image_tool.find(settings.images)
    others = f"; other Pythons: {', '.join(installer.pythons) or 'none'}" if installer else ""
    packages = f"by uv ({installer.program}){others}" if installer else "uv is not installed (pip install uv)"
    images = "unpacked by %s, run by bubblewrap" if unpacker else "%s is not installed, or not allowed here (images)"
    return [
        Ability("packages that tasks ask for", bool(installer), packages),
        Ability("container images that tasks ask for", bool(unpacker), images % settings.images.value),
    ]


def gpus_of(settings: WorkerSettings, found: Sequence[LocalGpu], sandbox: str) -> list[Ability]:
    """Return which GPUs a worker here offers, and whether tasks are kept from those of others."""
    named, kind = frozenset(settings.gpu_devices), NO_SANDBOX if settings.sandbox is SandboxChoice.OFF else sandbox
    abilities = []
    for each in found:
        reason, gpu = why_not_offered(each, settings.gpu, named), each.gpu
        memory = f"{gpu.memory_bytes / 2**30:.3g} GiB" if gpu.memory_bytes else "memory not known yet"
        capability = f"CUDA {gpu.capability}, " if gpu.capability else ""
        detail = f"{memory}, {capability}driver {gpu.driver}, {gpu.id}"
        words = f"not offered: {reason} ({detail})" if reason else detail
        abilities.append(Ability(f"GPU {gpu.index}, {gpu.model}", not reason, words))
    if any(ability.has for ability in abilities):
        has_walls = kind != NO_SANDBOX
        words = (
            "by the sandbox"
            if has_walls
            else "not enforced: without a sandbox, tasks can open every GPU of this user"
        )
        abilities.append(Ability("each task has only its own GPUs", has_walls, words))
    return abilities


_WHERE_PEERS = "in an encrypted grid, and where its operator says so"


def _peers(settings: WorkerSettings) -> Ability:
    """Return whether this worker takes part in carrying files, and whether its port is open now."""
    if not settings.peer_files:
        return Ability("peers", False, "off on this computer (peer_files = false): all files come from the master")
    if not settings.peer_port:
        return Ability("peers", True, f"{_WHERE_PEERS}, some free port is open to other workers of the grid")
    try:
        socket.create_server(("", settings.peer_port)).close()
        state = "it is closed now"
    except OSError:
        state = "it is open now"
    where = f"{_WHERE_PEERS}, port {settings.peer_port} is open to other workers of the grid"
    return Ability("peers", True, f"{where}; {state}; peer_files = false refuses")


def _planner() -> list[Ability]:
    """Return how plans of transfers are made here, where a master is installed; nothing elsewhere."""
    if find_spec("sqlalchemy") is None:
        return []
    if find_spec("highspy") is None:
        return [Ability("plans of transfers", False, "fair rates, by filling up; best ones with loopline[planner]")]
    return [Ability("plans of transfers", True, "best rates, by HiGHS")]


def _speed(settings: WorkerSettings, computer: Computer) -> float:
    """Return the speed that a worker has saved; measure it if there was none."""
    folder = settings.data_dir
    return speed.kept(folder / "speed.json", processor(), computer.cpus) if folder.is_dir() else speed.measure()


async def _test(detector: IdleDetector, quietly: bool) -> SelfTest:
    """Ask for an input once there is none, and measure how soon it is seen."""
    say = sys.stderr if quietly else sys.stdout
    print("\nself-test: do not touch anything for a moment", file=say, flush=True)
    if await _until(detector, lambda now: now.certain_idle_s >= _CALM_S) is None:
        return SelfTest(False)
    print("self-test: now move the mouse, or press a key", file=say, flush=True)
    seen = await _until(detector, lambda now: now.idle_s is not None and now.idle_s < _CALM_S)
    return SelfTest(True, seen.by, round(seen.certain_idle_s, 3)) if seen else SelfTest(False)


async def _until(detector: IdleDetector, holds: Any) -> Idleness | None:
    give_up = time.monotonic() + _TEST_LIMIT_S
    while time.monotonic() < give_up:
        if holds(now := detector.look()):
            return now
        await asyncio.sleep(_LOOK_EVERY_S)
    return None


def _mark(good: bool, name: str, words: str) -> str:
    return f"  {'+' if good else '-'} {name}" + (f": {words}" if words else "")


def _reading_words(reading: Reading) -> str:
    if reading.idle_s is None:
        return reading.detail
    vouches = "" if reading.sees_desktop else "; does not see the desktop"
    return f"last input {reading.idle_s:.1f} s ago ({reading.detail}{vouches})"


def _idle_words(found: Findings) -> str:
    if found.idle_s is None:
        return f"in use, to be safe: {found.in_use_says}"
    return f"{found.in_use_says} decides: the last input was {found.idle_s:.1f} s ago"


def _pressure_words(pressure: Pressure) -> str:
    known = {name: value for name, value in asdict(pressure).items() if value is not None}
    if not known:
        return "the kernel does not report pressure (waiting times)"
    return "pressure (time spent waiting) in the last 10 s: " + ", ".join(
        f"{name} {value:.1f} %" for name, value in known.items()
    )


def _test_words(test: SelfTest) -> str:
    if test.seen:
        return f"self-test: seen by {test.by}, {test.after_s:.3f} s after it happened"
    return "self-test: no input was seen. A worker would assume that this computer is in use, or not notice you"


def _parser() -> Parser:
    description = "Show what a worker can see of the owner of this computer, and how well it can isolate tasks."
    parser = Parser("loopline doctor", description=description)
    parser.add_argument("--json", action="store_true", help="answer with JSON on stdout, and nothing else")
    parser.add_argument("--self-test", action="store_true", help="ask for an input and measure how soon it is seen")
    parser.add_argument("--sandbox", action="store_true", help="say as JSON which sandbox tasks have, nothing else")
    parser.add_argument("--policy", metavar="WHEN", help="when tasks run, as for `loopline worker`")
    parser.add_argument("--data-dir", type=Path, metavar="FOLDER", help="the worker's data folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
