"""The choice among sources of energy: the first that is set of a meter's command, the processor's counters and
declared watts.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_worker.energy.energy_price import EnergyPrice
from loopline_worker.energy.energy_wing import Energy, KeptIdlePower
from loopline_worker.energy.power_sources import DeclaredPower, PowerSource, WattsCommand, packages
from loopline_worker.host.computer import Computer, is_contained
from loopline_worker.launch.abilities import Ability
from loopline_worker.settings import WorkerSettings
from loopline_worker.task_group import TaskGroup

_NAME = "energy of tasks"
_NO_COUNTERS = "this user can read no counters of the processor (a service whose tasks have users of their own can)"


def meter_of(settings: WorkerSettings) -> PowerSource | None:
    """Return what measures energy here; None if nothing does.

    A container sees only its own CPU time, and so cannot share the energy of the whole computer.
    """
    if is_contained():
        return None
    return WattsCommand(shlex.split(settings.watts_command)) if settings.watts_command else packages()


def open_energy(
    settings: WorkerSettings,
    computer: Computer,
    idle_power: Path,
    task_group: TaskGroup,
    *,
    gpus_j: Callable[[], float],
    is_woken: Callable[[], bool],
) -> list[Energy]:
    """Return the wing for energy, which measures from now on, if energy is measured or declared here.

    ``gpus_j``: joules that tasks are charged for their GPUs, which a meter at the socket shows as well. ``is_woken``:
    whether the computer is on because the grid woke it.
    """
    meter = meter_of(settings)
    if meter is not None:
        kept = KeptIdlePower(idle_power, meter.kind)
        declared = settings.watts_idle if meter.kind is EnergySource.SOCKET else None
        price = EnergyPrice(min((watts for watts in (kept.watts, declared) if watts), default=None))
        wing = Energy(meter.kind, price, is_woken)
        apart_j = gpus_j if meter.kind is EnergySource.SOCKET else lambda: 0.0
        task_group.start(wing.measure(meter, computer.busy_cpu_s, kept, apart_j))
        return [wing]
    if settings.watts_busy is not None and settings.watts_idle is not None:
        joules = (settings.watts_busy - settings.watts_idle) / computer.measured_cores
        wing = Energy(EnergySource.DECLARED, EnergyPrice(settings.watts_idle, joules), is_woken)
        power = DeclaredPower(settings.watts_idle, joules, computer.busy_cpu_s)
        task_group.start(wing.measure(power, computer.busy_cpu_s))
        return [wing]
    return []


async def ability(settings: WorkerSettings) -> Ability:
    """Return whether energy is measured or declared here, as far as the caller may read it."""
    meter, words = meter_of(settings), ""
    if isinstance(meter, WattsCommand):
        watts = await meter.watts()
        words = f"{watts:g} W at the socket now" if watts else "watts_command prints no number of watts"
        return Ability(_NAME, watts is not None, words)
    if meter is not None:
        return Ability(_NAME, True, "measured by the processor: its package only")
    if settings.watts_busy is not None:
        return Ability(_NAME, True, f"declared: {settings.watts_idle:g} W idle, {settings.watts_busy:g} W busy")
    words = "a container cannot measure it" if is_contained() else _NO_COUNTERS
    return Ability(_NAME, False, f"{words}; set watts_idle and watts_busy, or watts_command (docs/energy.md)")
