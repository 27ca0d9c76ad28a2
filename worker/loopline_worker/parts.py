"""The parts of an agent that do I/O, put together from its settings."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from loopline_shared.errors import LooplineError
from loopline_shared.model import Facts, Resource
from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_shared.protocol.transfers import FlowMeasured, MeasureFlow
from loopline_worker.attempts.agent_wing import AgentWing
from loopline_worker.attempts.fence import CAN_FENCE, Fence
from loopline_worker.attempts.limits import quota_of
from loopline_worker.attempts.runner import Runner
from loopline_worker.attempts.start_gate import GangGates
from loopline_worker.checkpoints.checkpoint_wing import Checkpoints
from loopline_worker.checkpoints.local_store import LocalStore
from loopline_worker.core.events import Event
from loopline_worker.core.hours import Hours
from loopline_worker.core.machine import Machine
from loopline_worker.core.owner_policy import Policy
from loopline_worker.departure import Departure
from loopline_worker.environments import image_tool, uv
from loopline_worker.environments.environments import Abilities, Environments
from loopline_worker.environments.package_maker import PackageMaker
from loopline_worker.environments.recipe import Recipes
from loopline_worker.environments.store import EnvironmentStore
from loopline_worker.files.allowance import NetworkAllowance
from loopline_worker.files.cache import Cache
from loopline_worker.files.downloads import Downloads
from loopline_worker.files.task_files import AttemptFiles
from loopline_worker.files.uploads import Uploads
from loopline_worker.functions.launcher import FunctionLauncher
from loopline_worker.functions.python import Python
from loopline_worker.functions.python import find as find_python
from loopline_worker.gpus.gpu_locks import GpuLocks
from loopline_worker.gpus.gpu_wing import Gpus
from loopline_worker.gpus.known_gpus import KnownGpus
from loopline_worker.gpus.local_gpus import LocalGpu, ready_gpus, unknown_names, why_not_offered
from loopline_worker.host import speed
from loopline_worker.host.boot_clock import boot_s, steady
from loopline_worker.host.computer import Computer, facts, machine_of, processor
from loopline_worker.host.load import Meter
from loopline_worker.host.network_card import host_link
from loopline_worker.launch.interface import Launcher
from loopline_worker.link.http_client import HttpClient
from loopline_worker.link.link_quality import LinkQuality
from loopline_worker.link.own_address import addresses_towards
from loopline_worker.owner.blockers import Pause
from loopline_worker.owner.owner_monitor import OwnerMonitor
from loopline_worker.owner.preferences import preferences_of
from loopline_worker.peers.peering import Peering
from loopline_worker.power.packet_sender import PacketSender
from loopline_worker.settings import GpuChoice, SandboxChoice, WorkerSettings
from loopline_worker.state.attempt_log import AttemptLog, Contribution
from loopline_worker.state.data_directory import DataDirectory, Disk
from loopline_worker.state.journal import Journal, Spool
from loopline_worker.state.result_delivery import ResultDelivery
from loopline_worker.task_group import TaskGroup

if TYPE_CHECKING:
    from loopline_shared.protocol.power import WakeFacts
    from loopline_worker.checkpoints.tools import CheckpointTools
    from loopline_worker.energy.energy_wing import Energy
    from loopline_worker.launch.sandbox import Sandbox
    from loopline_worker.power.sleep_wing import SleepWing

log = logging.getLogger(__name__)

_COUNTERS = Path("/sys/class/powercap/intel-rapl:0")
"""Energy counter of the first package, of Intel or AMD. Most virtual machines have none."""

Post = Callable[[Event], None]


@dataclass(slots=True)
class Parts:
    """Parts of an agent. Only the machine, and the journal on disk, keep the state of an attempt."""

    settings: WorkerSettings
    facts: Facts
    data_directory: DataDirectory
    http_client: HttpClient
    machine: Machine
    meter: Meter
    spool: Spool
    journal: Journal
    link_quality: LinkQuality
    wings: tuple[AgentWing, ...]
    probe: Callable[[MeasureFlow], Awaitable[FlowMeasured]]
    cache: Cache
    launcher: FunctionLauncher
    runner: Runner
    delivery: ResultDelivery
    monitor: OwnerMonitor
    disk: Disk
    attempt_log: AttemptLog
    departure: Departure

    def close(self) -> None:
        """Let go of files, probes and processes."""
        self.journal.close()
        self.attempt_log.contribution.save(at_once=True)
        for wing in self.wings:
            wing.close()
        self.monitor.close()
        self.launcher.close()


def assemble(
    name: str, settings: WorkerSettings, data_directory: DataDirectory,
    http_client: HttpClient, task_group: TaskGroup, post: Post,
) -> Parts:  # fmt: skip
    """Put an agent's parts together; events go to ``post``. Raises LooplineError if a part cannot be made."""
    computer = Computer.here()
    python = find_python(settings.python)
    sandbox = _sandbox(settings, python)
    abilities, departure = _abilities(settings, sandbox), _departure(settings)
    gpus = _gpus(settings, data_directory.gpus, task_group, has_walls=sandbox is not None)
    energy = _energy(settings, computer, data_directory.idle_power, task_group, gpus, lambda: _is_woken(sleep))
    known = _facts(settings, data_directory, computer, python, sandbox, abilities, gpus)
    own = replace(known, until=departure.told, energy=_sources(energy, gpus))
    preferences = preferences_of(settings, computer.memory_bytes())
    meter, link_quality = Meter(computer), LinkQuality(boot_s())
    allowance = _allowance(settings, data_directory)
    uploads = Uploads(http_client, link_quality.moved, allowance)
    spool, journal = Spool(data_directory.spool), Journal(data_directory.journal)
    pause = Pause(data_directory.pause)
    peering = _peering(name, settings, http_client, task_group, pause, allowance)
    cache = Cache(data_directory.cache, settings.cache_limit_bytes, Downloads(http_client, peering, allowance))
    peering.serve_from(cache)
    launcher = FunctionLauncher(make_launcher(not settings.dedicated, sandbox), cache, (python.program,))
    attempt_files = AttemptFiles(cache, spool, settings.scratch_limit_bytes, settings.outputs_limit_bytes)
    quota = quota_of(settings, own)
    environments = _environments(
        abilities, python, settings, data_directory, cache,
        lambda found: PackageMaker(found, launcher, cache, quota.limits(None, 1)),
    )  # fmt: skip
    checkpoints = _checkpoints(name, settings, data_directory, cache, uploads, allowance, task_group)
    sleep = _sleep(settings, own, task_group, pause)
    always = (environments, GangGates(), peering, Fence(lambda: link_quality.answered_at), PacketSender())
    wings: tuple[AgentWing, ...] = (*always, *sleep, *gpus, checkpoints, *energy)
    machine = Machine(
        own.slots, preferences, settings.grace_s, [wing.machine_wing for wing in wings if wing.machine_wing]
    )
    runner = Runner(
        task_group, launcher, spool, data_directory.scratch, post,
        worker=name, output_limit_bytes=settings.output_limit_bytes, quota=quota, attempt_files=attempt_files,
        wings=wings,
    )  # fmt: skip
    monitor = OwnerMonitor(
        settings, computer, machine, post,
        preferences=preferences, meter=meter, pause=pause, free_bytes=data_directory.free_bytes, allowance=allowance,
    )  # fmt: skip
    return Parts(
        settings=settings, facts=own, data_directory=data_directory, http_client=http_client, machine=machine,
        meter=meter, spool=spool, journal=journal, link_quality=link_quality, wings=wings, probe=peering.probe,
        cache=cache, launcher=launcher, runner=runner,
        delivery=ResultDelivery(journal, spool, uploads, task_group, post, wings=wings),
        monitor=monitor, disk=Disk(data_directory, settings.disk_reserve_bytes),
        attempt_log=AttemptLog(Contribution(data_directory.contribution)), departure=departure,
    )  # fmt: skip


def _checkpoints(
    name: str, settings: WorkerSettings, data_directory: DataDirectory, cache: Cache, uploads: Uploads,
    allowance: NetworkAllowance, task_group: TaskGroup,
) -> Checkpoints:  # fmt: skip
    store = LocalStore(data_directory.checkpoints)

    def make_tools() -> CheckpointTools:
        from loopline_worker.checkpoints.tools import CheckpointTools  # for few workers

        return CheckpointTools(
            worker=name, store=store, cache=cache, uploads=uploads, allowance=allowance, task_group=task_group,
            free_bytes=lambda: data_directory.free_bytes() - settings.disk_reserve_bytes,
        )  # fmt: skip

    return Checkpoints(store, make_tools)


def _sleep(settings: WorkerSettings, own: Facts, task_group: TaskGroup, pause: Pause) -> list[SleepWing]:
    """Return the wing for the computer's sleep, where the system announces it."""
    if sys.platform != "linux":
        return []
    from loopline_worker.power import wake_facts
    from loopline_worker.power.sleep_wing import SleepWing

    def read(address: str, can_suspend: bool) -> WakeFacts | None:
        link = host_link(address, "") if address else own.link
        card, subnet = wake_facts.card_of(address or own.address), link.subnet if link else ""
        facts = wake_facts.read(card, subnet, is_allowed=settings.allow_wake, can_suspend=can_suspend)
        hours = Hours() if settings.dedicated else settings.hours
        return facts and wake_facts.with_hours(facts, hours, pause.left_s(time.time()))

    wing = SleepWing(task_group, read, knows_owner=settings.dedicated or settings.policy is not Policy.ALWAYS)
    task_group.start(wing.watch())
    return [wing]


def _is_woken(sleep: Sequence[SleepWing]) -> bool:
    return any(each.is_woken for each in sleep)


def _departure(settings: WorkerSettings) -> Departure:
    """Return the end of a worker in an allocation."""
    return Departure(
        steady(),
        until=settings.until,
        idle_timeout_s=settings.idle_timeout_s,
        death_timeout_s=settings.death_timeout_s,
    )


def _peering(
    name: str, settings: WorkerSettings, http_client: HttpClient, task_group: TaskGroup,
    pause: Pause, allowance: NetworkAllowance,
) -> Peering:  # fmt: skip
    """Return the exchange of large files, which rests while the owner pauses or the allowance is used up."""
    return Peering(
        name, settings, http_client, task_group,
        is_paused=lambda: pause.left_s(time.time()) > 0 or bool(allowance.why_closed), on_sent=allowance.spend,
    )  # fmt: skip


def _allowance(settings: WorkerSettings, data_directory: DataDirectory) -> NetworkAllowance:
    """Return the network allowance; a dedicated computer has no owner to set one."""
    if settings.dedicated:
        return NetworkAllowance(data_directory.traffic, on_metered=True)
    return NetworkAllowance(data_directory.traffic, settings.max_mb_per_day, on_metered=settings.on_metered)


def _facts(
    settings: WorkerSettings,
    data_directory: DataDirectory,
    computer: Computer,
    python: Python,
    sandbox: Sandbox | None,
    abilities: Abilities,
    gpus: Sequence[Gpus],
) -> Facts:
    found = speed.known(data_directory.speed, processor(), computer.cpus)
    address, master = addresses_towards(settings.master)
    own = facts(
        computer,
        settings.slots,
        settings.labels,
        found.value,
        network=sandbox is None or sandbox.grants_network,
        functions=python.functions,
    )
    return replace(
        own,
        speed_source=found.source,
        speed_measured_at=found.measured_at,
        folders=settings.shared_folders,
        gangs=True,
        gang_network=sandbox is None or sandbox.grants_gangs,
        sandbox=sandbox.kind if sandbox else "none",
        address=settings.address or address,
        link=host_link(address, master),
        software=abilities.words(python.version),
        machine=machine_of(data_directory.folder),
        transient=settings.transient,
        fences=CAN_FENCE,
        resources=_resources(settings, gpus),
    )


def _energy(
    settings: WorkerSettings, computer: Computer, idle_power: Path, task_group: TaskGroup, gpus: Sequence[Gpus],
    is_woken: Callable[[], bool],
) -> list[Energy]:  # fmt: skip
    if not (settings.watts_command or settings.watts_busy or _COUNTERS.exists()):
        return []
    from loopline_worker.energy.choice import open_energy  # for workers with a source

    return open_energy(
        settings, computer, idle_power, task_group,
        gpus_j=lambda: sum(each.joules for each in gpus), is_woken=is_woken,
    )  # fmt: skip


def _sources(energy: Sequence[Energy], gpus: Sequence[Gpus]) -> tuple[EnergySource, ...]:
    of_gpus = [EnergySource.GPU] if any(each.counts_energy for each in gpus) else []
    return (*(each.kind for each in energy), *of_gpus)


def _resources(settings: WorkerSettings, gpus: Sequence[Gpus]) -> tuple[Resource, ...]:
    named = [Resource(name, int(units)) for name, units in (one.split("=") for one in settings.resources)]
    return tuple(sorted([*named, *(each.resource for each in gpus)], key=lambda one: one.name))


def _gpus(settings: WorkerSettings, known: Path, task_group: TaskGroup, *, has_walls: bool) -> list[Gpus]:
    """Return the wing for the GPUs that this worker offers, if there are any, and watch them.

    ``known``: the file about them.

    Raises LooplineError if the sandbox would show one of them to all tasks.
    """
    if settings.gpu is GpuChoice.OFF:
        return []
    named = frozenset(settings.gpu_devices)
    found = ready_gpus()
    if unknown := unknown_names(found, named):
        log.warning("no GPU here is %s (gpu_devices): `loopline doctor` lists them", ", ".join(unknown))
    offered = [
        replace(each, gpu=replace(each.gpu, shares=settings.gpu_shares))
        for each in found
        if not why_not_offered(each, settings.gpu, named)
    ]
    _check_shown(settings, offered)
    is_dedicated = settings.dedicated or settings.gpu is GpuChoice.DEDICATED
    if not offered:
        return []
    wing = Gpus(offered, GpuLocks(), KnownGpus(known), is_dedicated=is_dedicated, has_walls=has_walls)
    task_group.start(wing.watch.keep(wing.on_reading))
    return [wing]


def _check_shown(settings: WorkerSettings, offered: Sequence[LocalGpu]) -> None:
    for shown in settings.sandbox_shows if settings.sandbox is not SandboxChoice.OFF else ():
        for each in offered:
            if any(Path(file).is_relative_to(shown.resolve()) for file in (each.own_file, each.files[0])):
                message = f"sandbox_shows = {shown} would show {each.own_file}, a GPU, to all tasks"
                raise LooplineError("sandbox_shows", message, "leave it out, or set gpu = off")


def _abilities(settings: WorkerSettings, sandbox: Sandbox | None) -> Abilities:
    """Return what this worker can provide: packages need the network, and images need bubblewrap."""
    has_network = sandbox is None or sandbox.grants_network
    has_images = sandbox is not None and sandbox.kind is SandboxChoice.BUBBLEWRAP
    return Abilities(
        uv.find(settings.fetch_pythons) if has_network else None,
        image_tool.find(settings.images) if has_images else None,
    )


def _environments(
    abilities: Abilities, python: Python, settings: WorkerSettings, data_directory: DataDirectory, cache: Cache,
    make_maker: Callable[[uv.Uv], PackageMaker],
) -> Environments:  # fmt: skip
    pythons = abilities.uv.pythons if abilities.uv else {}
    changed_at = Path(python.program).resolve().stat().st_mtime_ns if python.version else 0
    store = EnvironmentStore(data_directory.environments, settings.cache_limit_bytes, cache)
    store.open()
    recipes = Recipes(python, pythons, f"{python.version} of {changed_at}")
    return Environments(abilities, recipes, store, data_directory.scratch, make_maker)


def make_launcher(yields: bool, sandbox: Sandbox | None) -> Launcher:
    """Return the launcher for this system. ``yields``: its tasks have the lowest priority."""
    if sys.platform == "win32":
        from loopline_worker.launch.windows_launcher import WindowsLauncher

        return WindowsLauncher(yields)
    from loopline_worker.launch.posix import PosixLauncher
    from loopline_worker.supervisor import requests

    return PosixLauncher(yields, sandbox, requests.inherited())


def _sandbox(settings: WorkerSettings, python: Python) -> Sandbox | None:
    """Return what confines tasks; None if nothing is asked for. Raises LooplineError if it cannot be had here."""
    if settings.sandbox is SandboxChoice.OFF:
        return None
    from loopline_worker.launch.sandbox import open_sandbox
    from loopline_worker.supervisor import requests

    shows = [*settings.sandbox_shows, *python.folders]
    return open_sandbox(
        settings.sandbox,
        settings.sandbox_network,
        shows,
        settings.secrets(),
        settings.shared_folders,
        settings.data_dir / "etc",
        settings.sandbox_opens,
        is_service=requests.inherited() is not None,
    )
