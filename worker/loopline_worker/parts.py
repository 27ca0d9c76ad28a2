"""The parts of an agent that do I/O, put together from its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loopline_shared.model import Facts
from loopline_worker.attempts.limits import quota_of
from loopline_worker.attempts.runner import Runner
from loopline_worker.core.events import Event
from loopline_worker.core.machine import Machine
from loopline_worker.files.cache import Cache
from loopline_worker.files.downloads import Downloads
from loopline_worker.files.task_files import AttemptFiles
from loopline_worker.files.uploads import Uploads
from loopline_worker.functions.launcher import FunctionLauncher
from loopline_worker.functions.python import Python
from loopline_worker.functions.python import find as find_python
from loopline_worker.host import speed
from loopline_worker.host.computer import Computer, facts, processor
from loopline_worker.host.load import Meter
from loopline_worker.launch.platforms import make_launcher
from loopline_worker.link.http_client import Gate
from loopline_worker.link.link_quality import Network
from loopline_worker.owner.owner_monitor import OwnerMonitor
from loopline_worker.owner.pause import Pause
from loopline_worker.owner.preferences import terms_of
from loopline_worker.settings import WorkerSettings
from loopline_worker.state import legacy
from loopline_worker.state.attempt_log import AttemptLog
from loopline_worker.state.data_directory import Home
from loopline_worker.state.disk import Disk
from loopline_worker.state.journal import Journal
from loopline_worker.state.result_delivery import ResultDelivery
from loopline_worker.state.spool import Spool
from loopline_worker.task_group import Crew

if TYPE_CHECKING:
    from loopline_worker.launch.sandbox import Sandbox

Post = Callable[[Event], None]


@dataclass(slots=True)
class Parts:
    """One agent's. None of them keeps the state of an attempt but the machine, and what is on disk."""

    settings: WorkerSettings
    facts: Facts
    home: Home
    machine: Machine
    meter: Meter
    spool: Spool
    journal: Journal
    network: Network
    cache: Cache
    launcher: FunctionLauncher
    runner: Runner
    delivery: ResultDelivery
    monitor: OwnerMonitor
    disk: Disk
    attempt_log: AttemptLog

    def close(self) -> None:
        """Let go of files, probes and processes."""
        self.journal.close()
        self.monitor.close()
        self.launcher.close()


def assemble(name: str, settings: WorkerSettings, home: Home, gate: Gate, crew: Crew, post: Post) -> Parts:
    """Put an agent's parts together; ``post`` is told what happens. Raises LooplineError if one cannot be had."""
    computer = Computer.here()
    python = find_python(settings.python)
    own = _facts(settings, home, computer, python)
    terms = terms_of(settings, computer.memory_bytes())
    machine = Machine(own.slots, terms, settings.grace_s)
    meter, network = Meter(computer), Network()
    spool = Spool(home.spool, settings.spool_limit_bytes)
    journal = Journal(home.ledger)
    legacy.take_over(journal, home.inbox, home.spool)
    cache = Cache(home.cache, settings.cache_limit_bytes, Downloads(gate))
    launcher = FunctionLauncher(
        make_launcher(not settings.dedicated, _sandbox(settings, python)), cache, (python.program,)
    )
    shelf = AttemptFiles(cache, spool, settings.scratch_limit_bytes, settings.outputs_limit_bytes)
    quota = quota_of(settings, own)
    runner = Runner(
        crew, launcher, spool, home.scratch, name, settings.output_limit_bytes, post, quota=quota, shelf=shelf
    )
    return Parts(
        settings=settings,
        facts=own,
        home=home,
        machine=machine,
        meter=meter,
        spool=spool,
        journal=journal,
        network=network,
        cache=cache,
        launcher=launcher,
        runner=runner,
        delivery=ResultDelivery(journal, spool, Uploads(gate, network.moved), crew, post),
        monitor=OwnerMonitor(settings, terms, computer, meter, Pause(home.pause), home.free_bytes, machine, post),
        disk=Disk(home, settings.disk_reserve_bytes, lambda: spool.is_full(journal.live_bytes)),
        attempt_log=AttemptLog(),
    )


def _facts(settings: WorkerSettings, home: Home, computer: Computer, python: Python) -> Facts:
    found = speed.known(home.speed, processor(), computer.cpus)
    own = facts(
        computer,
        settings.slots,
        settings.labels,
        found.value,
        network=settings.sandbox_network or not settings.sandbox,
        functions=python.functions,
    )
    return replace(own, speed_source=found.source, speed_measured_at=found.measured_at)


def _sandbox(settings: WorkerSettings, python: Python) -> Sandbox | None:
    """Return what confines tasks; None if nothing is asked for. Raises LooplineError if it cannot be had here."""
    if not settings.sandbox:
        return None
    from loopline_worker.launch.sandbox import open_sandbox

    shows = [*settings.sandbox_shows, *python.folders]
    return open_sandbox(settings.sandbox_network, shows, hides=settings.secrets())
