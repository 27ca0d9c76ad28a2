"""Energy of attempts: counters of processors as a folder of files, a meter's command, and the share of tasks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from pydantic import ValidationError

from loopline_shared.model import AttemptId, Held, Outcome, Result
from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_worker.energy import choice, energy_wing, power_sources
from loopline_worker.energy.energy_price import EnergyPrice
from loopline_worker.energy.energy_wing import Energy, KeptIdlePower
from loopline_worker.energy.power_sources import DeclaredPower, PackageCounters, PowerSource, WattsCommand
from loopline_worker.host.computer import Computer
from loopline_worker.settings import WorkerSettings
from loopline_worker.supervisor.users import package_counters
from loopline_worker.task_group import TaskGroup
from tests.worker.bench import run_of, until

PACKAGE = EnergySource.PACKAGE
RANGE_UJ = 262_143_328_850
WORKER = Path(package_counters.__file__).parents[3]


def add_zone(root: Path, zone: str, name: str, count_uj: int) -> None:
    """Write a zone of powercap, as the kernel shows it."""
    folder = root / zone
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in (("name", name), ("energy_uj", count_uj), ("max_energy_range_uj", RANGE_UJ)):
        (folder / file).write_text(f"{content}\n")


def two_packages(root: Path, first_uj: int, second_uj: int) -> None:
    add_zone(root, "intel-rapl:0", "package-0", first_uj)
    add_zone(root, "intel-rapl:0:0", "core", first_uj // 2)
    add_zone(root, "intel-rapl:1", "package-1", second_uj)
    add_zone(root, "intel-rapl:2", "psys", first_uj * 3)
    add_zone(root, "intel-rapl-mmio:0", "package-0", first_uj)
    (root / "intel-rapl").mkdir(exist_ok=True)


def counters(root: Path) -> PackageCounters:
    return PackageCounters(lambda: package_counters.read(str(root)))


async def test_packages_are_added_up_without_their_parts(tmp_path: Path) -> None:
    two_packages(tmp_path, 1_000_000, 5_000_000)
    source = counters(tmp_path)
    assert await source.joules(10.0) is None, "the first reading has no interval"
    two_packages(tmp_path, 201_000_000, 105_000_000)
    assert await source.joules(10.0) == pytest.approx(200.0 + 100.0)


async def test_counter_that_wraps_around_counts_on(tmp_path: Path) -> None:
    two_packages(tmp_path, RANGE_UJ - 30_000_000, 0)
    source = counters(tmp_path)
    await source.joules(10.0)
    two_packages(tmp_path, 20_000_000, 1_000_000)
    assert await source.joules(10.0) == pytest.approx(50.0 + 1.0)


async def test_counter_that_was_reset_gives_no_energy(tmp_path: Path) -> None:
    two_packages(tmp_path, RANGE_UJ // 2, 0)
    source = counters(tmp_path)
    await source.joules(60.0)
    two_packages(tmp_path, 0, 0)
    assert await source.joules(60.0) is None, "it would be 2.2 kW"
    two_packages(tmp_path, 5_000_000, 0)
    assert await source.joules(60.0) == pytest.approx(5.0), "the next interval counts again"


async def test_package_that_goes_away_gives_no_energy(tmp_path: Path) -> None:
    two_packages(tmp_path, 0, 0)
    source = counters(tmp_path)
    await source.joules(5.0)
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert await source.joules(5.0) is None


def reader(root: Path, script: str) -> str:
    """Return what another process prints, which has the functions and the folder at hand."""
    program = f"""
import os, sys
sys.path.append({str(WORKER)!r})
from loopline_worker.supervisor.users import credentials, package_counters
from loopline_worker.supervisor.users.credentials import TaskUser
from loopline_worker.supervisor.users.slot_users import SlotUsers
package_counters.FOLDER = {str(root)!r}
{script}"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def may_be_entered(folder: Path) -> None:
    """Let every user reach a folder of pytest."""
    for part in (folder, *folder.parents):
        if part.owner() == Path.home().owner() and not part.stat().st_mode & 0o001:
            part.chmod(part.stat().st_mode | 0o011)


REFUSED = """
try:
    package_counters.read(package_counters.FOLDER)
except PermissionError:
    print("refused")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux counts it")
def test_counters_need_permission(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = Path(tmp_path_factory.mktemp("powercap"))
    two_packages(root, 1, 1)
    (root / "intel-rapl:1" / "energy_uj").chmod(0)
    may_be_entered(root)
    assert reader(root, f"os.getuid() or os.setuid(65534)\n{REFUSED}") == "refused\n"
    if os.geteuid():
        assert counters(root).counts() is None
    assert counters(root / "missing").counts() is None


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can give away powers")
def test_first_process_of_a_service_reads_counters_of_root(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = Path(tmp_path_factory.mktemp("powercap"))
    two_packages(root, 7, 9)
    (root / "intel-rapl:0" / "energy_uj").chmod(0o400)
    may_be_entered(root)
    said = reader(
        root,
        f"""
credentials.settle(TaskUser(20_000, 20_000))
credentials.keep_only(credentials.NEEDED)
{REFUSED}
answer, theirs = os.pipe()
users = SlotUsers([])
child = users.start_reading_counters(theirs)
assert users.start_reading_counters(theirs) == 0, "they are read once in 5 s"
os.close(theirs)
os.waitpid(child, 0)
print(os.read(answer, 1000).decode())
print(os.getresuid())
""",
    )
    assert said.splitlines() == [
        "refused",
        f"package-0 7 {RANGE_UJ}",
        f"package-1 9 {RANGE_UJ}",
        "(20000, 20000, 20000)",
    ]


@pytest.mark.parametrize("said", ["", "many", "-5", "0", "nan", "1e9"])
async def test_command_without_a_possible_power_measures_nothing(said: str) -> None:
    assert await WattsCommand(["printf", "%s", said]).watts() is None


async def test_command_gives_the_energy_between_two_readings(tmp_path: Path) -> None:
    power = tmp_path / "watts"
    power.write_text("60\n")
    source = WattsCommand(["cat", str(power)])
    assert await source.joules(10.0) is None
    power.write_text("100.0")
    assert await source.joules(10.0) == pytest.approx(800.0)
    assert await WattsCommand(["/no/such/meter"]).watts() is None
    assert await WattsCommand(["sh", "-c", "echo 50; exit 3"]).watts() is None


async def test_command_is_read_to_its_end() -> None:
    output = asyncio.StreamReader()
    reading = asyncio.create_task(power_sources._all_of(output))
    output.feed_data(b"9")
    await until(lambda: not output._buffer)  # type: ignore[attr-defined]
    output.feed_data(b"5\n")
    output.feed_eof()
    assert await reading == b"95\n"
    endless = asyncio.StreamReader()
    endless.feed_data(b"5" * 101)
    with pytest.raises(ValueError, match="too long"):
        await power_sources._all_of(endless)


async def test_children_of_a_command_end_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = list[asyncio.Timeout]()

    def timeout(seconds: float) -> asyncio.Timeout:
        limits.append(asyncio.timeout(10 * seconds))
        return limits[-1]

    monkeypatch.setattr(power_sources, "asyncio", SimpleNamespace(**{**vars(asyncio), "timeout": timeout}))
    for number, output in enumerate(("", ">/dev/null 2>&1")):
        child = tmp_path / f"child-{number}"
        script = f"sleep 600 {output} & echo $! >{child}; echo 50"
        measuring = asyncio.create_task(WattsCommand(["sh", "-c", script]).watts())
        if not output:
            await until(lambda child=child: limits and child.exists() and child.read_text())
            limits[-1].reschedule(0.0)  # its child holds its output open
        assert await measuring == (50.0 if output else None)
        pid = int(child.read_text())
        await until(
            lambda pid=pid: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        )


def test_owner_and_idle_computer_are_not_charged_to_tasks() -> None:
    price = EnergyPrice()
    price.add(joules=200.0, elapsed_s=10.0, busy_cpu_s=0.2)  # 20 W: idle
    price.add(joules=600.0, elapsed_s=10.0, busy_cpu_s=20.0)  # of these, the tasks have a part
    assert price.idle_w == 20.0
    assert price.joules_per_cpu_s == pytest.approx(400.0 / 20.0)


def test_price_is_unknown_after_a_reading_that_failed() -> None:
    price = EnergyPrice(idle_w=20.0)
    price.add(600.0, 10.0, 20.0)
    price.add(400.0, 10.0, 4.0)
    assert price.joules_per_cpu_s == pytest.approx(20.0), "less than half a core gives no price"
    price.add(None, 10.0, 20.0)
    assert price.joules_per_cpu_s is None


def test_charges_beyond_the_measured_energy_make_the_next_intervals_cheaper() -> None:
    price = EnergyPrice(idle_w=20.0)
    price.add(600.0, 10.0, 10.0)  # 40 J for a CPU-second
    assert price.charge(20.0, is_measured=False) == 800.0
    price.add(500.0, 10.0, 25.0)  # but it costs 12 J
    assert price.joules_per_cpu_s == pytest.approx(12.0)
    price.add(800.0, 10.0, 20.0)
    assert price.joules_per_cpu_s == pytest.approx((600.0 - (800.0 - 20.0 * 12.0)) / 20.0)
    price.add(600.0, 10.0, 20.0)
    assert price.joules_per_cpu_s == pytest.approx(20.0)


def an_attempt(cpu_s: float) -> SimpleNamespace:
    """Return an attempt that runs."""
    attempt = SimpleNamespace(held=Held(AttemptId(1, 1, 1), wall_s=cpu_s, cpu_s=cpu_s), is_frozen=False)
    attempt.measure = lambda: None
    return attempt


def ended(cpu_s: float) -> Result:
    return Result(AttemptId(1, 1, 1), Outcome.SUCCEEDED, 0, cpu_s=cpu_s)


def test_attempts_of_an_interval_share_its_energy_by_cpu_time() -> None:
    price = EnergyPrice(idle_w=20.0)
    wing = Energy(PACKAGE, price)
    parts = [wing.prepare(run_of("work", task=task), SimpleNamespace()) for task in (1, 2)]  # type: ignore[arg-type]
    attempts = [an_attempt(0.0), an_attempt(0.0)]
    for part, attempt in zip(parts, attempts, strict=True):
        part.attach(attempt)  # type: ignore[arg-type]
    price.add(600.0, 10.0, 20.0)  # 12 s are the tasks', 8 s the owner's
    attempts[0].held, attempts[1].held = Held(AttemptId(1, 1, 1), cpu_s=3.0), Held(AttemptId(1, 2, 1), cpu_s=9.0)
    for part in parts:
        part.charge()
    price.add(400.0, 10.0, 10.0)
    results = [part.complete(ended(cpu_s)) for part, cpu_s in zip(parts, (3.0, 11.0), strict=True)]
    assert [result.joules for result in results] == [{PACKAGE: 60.0}, {PACKAGE: 180.0 + 40.0}]


def test_attempt_without_energy_reports_none() -> None:
    part = Energy(PACKAGE, EnergyPrice()).prepare(run_of("work"), SimpleNamespace())  # type: ignore[arg-type]
    part.attach(an_attempt(0.0))  # type: ignore[arg-type]
    assert part.complete(ended(5.0)) == ended(5.0)


def test_idle_power_outlasts_the_agent(tmp_path: Path) -> None:
    file = tmp_path / "idle-power.json"
    kept = KeptIdlePower(file, PACKAGE)
    assert kept.watts is None
    kept.keep(22.5)
    kept.keep(30.0)
    assert KeptIdlePower(file, PACKAGE).watts == 22.5
    assert KeptIdlePower(file, EnergySource.SOCKET).watts is None, "the socket's is another"
    file.write_text("[]")
    assert KeptIdlePower(file, PACKAGE).watts is None


def test_busy_power_needs_a_smaller_idle_power() -> None:
    assert WorkerSettings(watts_idle=30, watts_busy=90).watts_busy == 90
    for wrong in ({"watts_busy": 90}, {"watts_idle": 90, "watts_busy": 90}):
        with pytest.raises(ValidationError, match="watts_busy needs a smaller watts_idle"):
            WorkerSettings(**wrong)


@pytest.mark.parametrize("wrong", [" ", "", '/usr/bin/meter "watts'])
def test_command_must_have_words(wrong: str) -> None:
    assert WorkerSettings(watts_command='/usr/bin/meter "my plug"').watts_command == '/usr/bin/meter "my plug"'
    with pytest.raises(ValidationError, match="expected a command such as /usr/local/bin/plug-power"):
        WorkerSettings(watts_command=wrong)


def test_energy_of_gpus_is_not_charged_twice() -> None:
    price = EnergyPrice(idle_w=50.0)
    price.add(3000.0, 10.0, 10.0, apart_j=2000.0)
    assert price.joules_per_cpu_s == pytest.approx((3000.0 - 500.0 - 2000.0) / 10.0)
    price.add(3000.0, 10.0, 10.0, apart_j=4000.0)
    assert price.joules_per_cpu_s == 0.0, "two readings of the GPU fell into this interval"
    price.add(3000.0, 10.0, 10.0)
    assert price.joules_per_cpu_s == pytest.approx((2500.0 - 1500.0) / 10.0), "of one, 1500 J are left"
    assert price.idle_w == 50.0


async def test_worker_measures_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy_wing, "_EVERY_S", 0.01)
    two_packages(tmp_path / "powercap", 0, 0)
    price, used = EnergyPrice(), iter(range(1_000_000))
    wing, kept = Energy(PACKAGE, price), KeptIdlePower(tmp_path / "idle-power.json", PACKAGE)
    wing.attach(SimpleNamespace(is_in_use=False))  # type: ignore[arg-type]
    part = wing.prepare(run_of("work"), SimpleNamespace())  # type: ignore[arg-type]
    part.attach(attempt := an_attempt(1.0))  # type: ignore[arg-type]
    measuring = asyncio.create_task(wing.measure(counters(tmp_path / "powercap"), lambda: next(used), kept))
    await until(lambda: kept.watts is not None)
    assert kept.watts == 0.0
    count = 0

    def has_energy() -> bool:
        nonlocal count
        count += 1
        two_packages(tmp_path / "powercap", 3_000 * count, 0)
        attempt.held = Held(AttemptId(1, 1, 1), wall_s=1.0, cpu_s=float(count))
        return part.joules > 0

    await until(has_energy)
    measuring.cancel()


def test_computer_that_the_grid_woke_is_charged_in_full() -> None:
    price, is_woken = EnergyPrice(idle_w=20.0), True
    wing, agent = Energy(PACKAGE, price, lambda: is_woken), SimpleNamespace(is_in_use=False)
    wing.attach(agent)  # type: ignore[arg-type]
    wing._charge_in_full(900.0)  # it starts up, and no task is there yet
    parts = [wing.prepare(run_of("work", task=task), SimpleNamespace()) for task in (1, 2, 3)]  # type: ignore[arg-type]
    for part, cpu_s in zip(parts, (4.0, 6.0, 0.0), strict=True):
        part.attach(an_attempt(cpu_s))  # type: ignore[arg-type]
    price.add(600.0, 10.0, 20.0)
    for part in parts:
        part.charge()
    wing._charge_in_full(600.0)
    assert [part.joules for part in parts] == [80.0 + 650.0, 120.0 + 650.0, 0.0], "the third waits for its inputs"
    assert sum(part.joules for part in parts) == 900.0 + 600.0
    is_woken = False
    wing._charge_in_full(600.0)
    assert sum(part.joules for part in parts) == 1500.0, "it would be on anyway"


def test_remainder_goes_to_no_attempt_whose_result_is_complete() -> None:
    price = EnergyPrice(idle_w=20.0)
    wing, agent = Energy(PACKAGE, price, lambda: True), SimpleNamespace(is_in_use=False)
    wing.attach(agent)  # type: ignore[arg-type]
    part = wing.prepare(run_of("work"), SimpleNamespace())  # type: ignore[arg-type]
    part.attach(an_attempt(5.0))  # type: ignore[arg-type]
    part.complete(ended(5.0))
    wing._charge_in_full(600.0)
    assert (part.joules, wing._remainder.joules) == (0.0, 600.0)


def test_woken_computer_is_charged_no_more_than_was_measured() -> None:
    price, charged = EnergyPrice(idle_w=20.0), 0.0
    wing = Energy(PACKAGE, price, lambda: True)
    wing.attach(SimpleNamespace(is_in_use=False))  # type: ignore[arg-type]
    for joules, busy_cpu_s, ended_cpu_s in (
        (900.0, 5.0, ()),
        (700.0, 40.0, (39.0,)),
        (600.0, 5.0, ()),
        (700.0, 9.0, (8.0,)),
    ):
        for cpu_s in ended_cpu_s:
            part = wing.prepare(run_of("work"), SimpleNamespace())  # type: ignore[arg-type]
            part.attach(an_attempt(0.0))  # type: ignore[arg-type]
            charged += (part.complete(ended(cpu_s)).joules or {PACKAGE: 0.0})[PACKAGE]
        price.add(joules, 10.0, busy_cpu_s)
        wing._charge_in_full(joules)
    assert charged + wing._remainder.joules == pytest.approx(900.0 + 700.0 + 600.0 + 700.0)


class Clocks:
    """Both clocks of a computer, and the CPU time and the power of its programs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.awake_s = self.suspended_s = 0.0
        self.cores, self.watts = 0.0, 20.0
        self.used_s = self.used_j = 0.0
        monkeypatch.setattr(energy_wing, "boot_s", lambda: self.awake_s + self.suspended_s)
        monkeypatch.setattr(energy_wing, "time", SimpleNamespace(monotonic=lambda: self.awake_s))

    def run(self, seconds: float) -> None:
        self.awake_s += seconds
        self.used_s += seconds * self.cores
        self.used_j += seconds * self.watts


async def measure_by(
    wing: Energy, clocks: Clocks, source: PowerSource, kept: KeptIdlePower, *pauses: Callable[[], None]
) -> None:
    """Have a wing measure; between two readings one of the ``pauses`` happens."""
    left = iter(pauses)

    async def pause() -> None:
        try:
            next(left)()
        except StopIteration:
            raise asyncio.CancelledError from None

    wing._pause = pause  # type: ignore[method-assign]
    wing.attach(SimpleNamespace(is_in_use=False))  # type: ignore[arg-type]
    with pytest.raises(asyncio.CancelledError):
        await wing.measure(source, lambda: clocks.used_s, kept)


async def test_interval_with_a_suspend_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks, price = Clocks(monkeypatch), EnergyPrice()
    kept = KeptIdlePower(tmp_path / "idle-power.json", PACKAGE)
    source = PackageCounters(lambda: f"package-0 {int(clocks.used_j * 1e6)} {RANGE_UJ}")
    prices = []

    def suspend() -> None:
        clocks.suspended_s += 200.0
        clocks.run(10.0)

    def busy() -> None:
        prices.append(price.joules_per_cpu_s)
        clocks.cores, clocks.watts = 4.0, 60.0
        clocks.run(10.0)

    await measure_by(
        Energy(PACKAGE, price), clocks, source, kept, lambda: clocks.run(10.0), busy, busy, suspend, busy, busy
    )
    assert prices == [None, 10.0, None, 10.0]
    assert (price.idle_w, kept.watts) == (20.0, 20.0)


async def test_slow_command_leaves_the_idle_power_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks, price = Clocks(monkeypatch), EnergyPrice()
    clocks.cores, clocks.watts = 2.0, 60.0
    kept, source = KeptIdlePower(tmp_path / "idle-power.json", EnergySource.SOCKET), WattsCommand(["true"])
    answers = iter((0.1, 0.1, 9.0, 0.1, 0.1))

    async def watts() -> float:
        clocks.run(next(answers))
        return clocks.watts

    source.watts = watts  # type: ignore[method-assign]
    await measure_by(Energy(EnergySource.SOCKET, price), clocks, source, kept, *[lambda: clocks.run(10.0)] * 4)
    assert price.idle_w == pytest.approx(60.0)
    assert kept.watts == pytest.approx(60.0)


async def test_readings_are_frequent_only_while_a_task_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy_wing, "_EVERY_S", 0.0)
    monkeypatch.setattr(energy_wing, "_IDLE_EVERY_S", 600.0)
    wing = Energy(PACKAGE, EnergyPrice())
    part = wing.prepare(run_of("work"), SimpleNamespace())  # type: ignore[arg-type]
    part.attach(attempt := an_attempt(1.0))  # type: ignore[arg-type]
    await wing._pause()
    attempt.is_frozen = True
    part.started(SimpleNamespace())  # type: ignore[arg-type]
    pausing = asyncio.create_task(wing._pause())
    await until(lambda: not wing._runs.is_set())
    assert not pausing.done(), "a frozen task uses nothing"
    part.on_frozen(False)
    await pausing


async def test_declared_power_is_that_of_all_processors(tmp_path: Path) -> None:
    computer = Computer.here()
    computer.cores, computer.measured_cores = 2.0, 8.0
    settings = WorkerSettings(watts_idle=20.0, watts_busy=100.0)
    async with TaskGroup() as task_group:
        [wing] = choice.open_energy(
            settings, computer, tmp_path / "idle-power.json", task_group, gpus_j=lambda: 0.0, is_woken=lambda: False
        )
        assert (wing.kind, wing._price.joules_per_cpu_s) == (EnergySource.DECLARED, 10.0)


def test_owner_who_returns_pays_for_the_rest() -> None:
    agent = SimpleNamespace(is_in_use=False)
    wing = Energy(PACKAGE, EnergyPrice(), lambda: True)
    wing.attach(agent)  # type: ignore[arg-type]
    wing._charge_in_full(300.0)
    wing._charge_in_full(None)
    assert wing._remainder.joules == 300.0, "a sleep changes nothing"
    agent.is_in_use = True
    wing._charge_in_full(None)
    assert wing._remainder.joules == 0.0


async def test_declared_power_is_idle_power_and_that_of_cpu_time() -> None:
    used = iter((100.0, 106.0))
    assert await DeclaredPower(30.0, 12.5, lambda: next(used)).joules(10.0) == 300.0 + 75.0
