"""The watch over GPUs, with the real program that calls NVML, and a small library in the place of NVIDIA's."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loopline_shared.model import AttemptId, Outcome
from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_worker.core.gpu_tasks import CheckedGpu
from loopline_worker.gpus import gpu_watch, nvml_reader
from loopline_worker.gpus.gpu_locks import GpuLocks
from loopline_worker.gpus.gpu_watch import IN_USE, UNMEASURED, GpuWatch
from loopline_worker.gpus.gpu_wing import Gpus
from loopline_worker.gpus.known_gpus import KnownGpus
from loopline_worker.gpus.local_gpus import find_gpus
from loopline_worker.gpus.nvml_reader import HANGS, GpuReading, NvmlReader
from tests.worker.bench import Bench, run_of, until
from tests.worker.gpu_trees import UUIDS, add_amd, add_nvidia, divide, use, write

SOURCE = Path(__file__).with_name("fake_nvml.c")
COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"
WORKING = "gpu 0000:01:00.0 0 16000000000 8 6 0\ngpu 0000:02:00.0 0 80000000000 8 0 0\n"
OWNER, OURS = os.getppid(), os.getpid()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Return the paths of the library in two versions."""
    folder = tmp_path_factory.mktemp("nvml")
    for name, words in (("new", []), ("old", ["-DOLD"])):
        command = [COMPILER or "", "-shared", "-fPIC", *words, "-o", str(folder / f"{name}.so"), str(SOURCE)]
        subprocess.run(command, check=True)
    return {name: str(folder / f"{name}.so") for name in ("new", "old")}


class Computer:
    """A computer with two GPUs, whose driver behaves as ``says`` has it."""

    def __init__(self, folder: Path, library: str) -> None:
        self.folder, self.tasks = folder, dict[str, Sequence[int]]()
        add_nvidia(folder, FIRST, minor=0)
        add_nvidia(folder, SECOND, minor=1, uuid=UUIDS[1], status="suspended")
        self.gpus = find_gpus(folder)
        self.reader = NvmlReader(library)
        self.says(WORKING)

    def says(self, text: str) -> None:
        write(self.folder / "nvml", text)

    def sleeps(self, address: str, status: str = "suspended") -> None:
        write(self.folder / "sys/bus/pci/devices" / address / "power/runtime_status", status)

    def watch(self, **options: Any) -> GpuWatch:
        known = {"is_dedicated": False, "reader": self.reader, "root": self.folder}
        return GpuWatch(lambda: self.gpus, lambda: self.tasks, **known | options)

    def withheld(self, watch: GpuWatch) -> list[str]:
        return [watch.withheld(each) for each in self.gpus]


@pytest.fixture
def computer(tmp_path: Path, libraries: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Computer:
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "nvml"))
    monkeypatch.setattr(nvml_reader, "_ANSWERS_WITHIN_S", 60.0)
    return Computer(tmp_path, libraries["new"])


async def test_memory_capability_and_use_by_process_are_read(computer: Computer) -> None:
    computer.says(
        f"{WORKING}use {FIRST} 11 1 30 0\nuse {FIRST} 11 2 50 0\nuse {FIRST} 12 1 1 70\nuse {FIRST} 13 99 9 0\n"
    )
    first, second = (await computer.reader.read([FIRST, SECOND], over_s=10.0)).values()
    assert first == GpuReading("", 16 * 10**9, 8 * 10**9, "8.6", {11: 40.0, 12: 70.0}), "13 was long ago"
    assert second == GpuReading("", 80 * 10**9, 40 * 10**9, "8.0", {})


async def test_energy_of_a_gpu_is_read_and_charged_to_its_tasks(computer: Computer, bench: Bench) -> None:
    wing = Gpus(
        computer.gpus, GpuLocks(computer.folder), KnownGpus(computer.folder / "gpus.json"),
        reader=computer.reader, root=computer.folder,
    )  # fmt: skip
    bench.runner._wings = (wing,)
    wing.attach(SimpleNamespace(post=lambda _: None, offer=lambda _: None, speak=lambda: None))  # type: ignore[arg-type]
    use(computer.folder, 1)
    gate = computer.folder / "gate"
    run = run_of("sh", "-c", f"touch begun; while [ ! -e {gate} ]; do sleep 0.05; done", gpus=(UUIDS[0],))
    await bench.begins(run)
    now = 1e9

    async def reads(millijoules: int, elapsed_s: float) -> None:
        nonlocal now
        now += elapsed_s
        computer.says(f"{WORKING}energy {FIRST} {millijoules}\n")
        await wing.watch.look()
        wing.watch.read_at = dict.fromkeys(wing.watch.read_at, now)
        wing.on_reading()

    await reads(1_000_000, 0.0)
    await reads(1_500_000, 10.0)  # 50 W
    await reads(4_500_000, 10.0)  # 300 W
    await reads(99_000_000, 1000.0)  # not read for long
    await reads(100_000_000, 10.0)  # 100 W
    await reads(100_000_000, 0.1)  # too soon: the counter has not moved
    await reads(100_500_000, 9.9)  # 50 W
    before = dict(wing.watch.read_at)
    gate.touch()
    result = await bench.end_of(run)
    assert result.joules == {EnergySource.GPU: 2500.0 + 500.0}
    assert wing.joules == 3000.0
    assert wing.watch.read_at == before, "no reading at the end: a driver that hangs would delay the result"


async def test_instances_of_a_divided_gpu_are_read_with_their_own_memory(computer: Computer) -> None:
    divide(computer.folder, 0, (1, 0), (2, 1))
    computer.gpus = find_gpus(computer.folder)[1:3]
    use(computer.folder, 1)
    computer.says(f"{WORKING}mig {FIRST} 1 0 5000000000\nmig {FIRST} 2 1 10000000000\n")
    places = [each.place for each in computer.gpus]
    readings = await computer.reader.read([*places, f"{FIRST}/3/0"], over_s=10.0)
    assert [readings[place].memory_bytes for place in places] == [5 * 10**9, 10 * 10**9]
    assert [readings[place].uses for place in places] == [None, None], "NVML does not measure it"
    assert "does not know it" in readings[f"{FIRST}/3/0"].trouble
    for is_dedicated, withheld in ((False, [UNMEASURED] * 2), (True, ["", ""])):
        watch = computer.watch(is_dedicated=is_dedicated)
        await watch.look()
        assert computer.withheld(watch) == withheld


async def test_use_is_unknown_where_the_driver_does_not_measure_it(
    computer: Computer, libraries: Mapping[str, str]
) -> None:
    for library in (libraries["old"], "/there/is/none.so"):
        assert (await NvmlReader(library).read([FIRST], 10.0))[FIRST].uses is None
    computer.says(f"gpu {FIRST} 0 16 8 6 3\n")
    assert (await computer.reader.read([FIRST], 10.0))[FIRST] == GpuReading("", 16, 8, "8.6", None)


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("init 18\n", "restart this computer"),
        ("init 9\n", "not loaded"),
        (f"gpu {FIRST} 15 1 8 6 0\n", "fallen off the bus"),
        (f"gpu {SECOND} 0 1 8 6 0\n", "does not know it"),
        (f"gpu {FIRST} 999 1 8 6 0\n", "error 999"),
    ],
)
async def test_gpu_that_fails_is_out_of_service_said_once(
    computer: Computer, says: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    use(computer.folder, 1)
    watch = computer.watch(is_dedicated=True)
    computer.says(says)
    for _ in range(2):
        await watch.look()
    assert words in watch.withheld(computer.gpus[0])
    assert watch.must_leave(computer.gpus[0]) == watch.broken(computer.gpus[0]) != ""
    assert watch.withheld(computer.gpus[1]) == "", "it sleeps, and was not read"
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    computer.says(WORKING)
    await watch.look()
    assert computer.withheld(watch) == ["", ""]


async def test_call_that_hangs_is_abandoned_and_not_repeated(
    computer: Computer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml_reader, "_ANSWERS_WITHIN_S", 0.5)
    computer.says("hang\n")
    assert (await computer.reader.read([FIRST], 10.0))[FIRST] == GpuReading(HANGS)
    abandoned = computer.reader._abandoned
    assert abandoned
    await until(lambda: abandoned.returncode is not None)  # a real one might not end
    computer.says(WORKING)
    monkeypatch.setattr(nvml_reader, "_ANSWERS_WITHIN_S", 60.0)
    assert (await computer.reader.read([FIRST], 10.0))[FIRST].trouble == ""
    computer.reader._abandoned = await asyncio.create_subprocess_exec("sleep", "600")
    assert (await computer.reader.read([FIRST], 10.0))[FIRST] == GpuReading(HANGS)
    computer.reader._abandoned.kill()
    await computer.reader._abandoned.wait()


async def test_library_that_crashes_takes_down_its_own_process_only(computer: Computer) -> None:
    computer.says("crash\n")
    assert (await computer.reader.read([FIRST], 10.0))[FIRST] == GpuReading()
    computer.says(WORKING)
    assert (await computer.reader.read([FIRST], 10.0))[FIRST].memory_bytes == 16 * 10**9


async def test_nvml_is_called_only_while_a_gpu_is_awake_and_open(computer: Computer) -> None:
    watch = computer.watch()
    await watch.look()
    assert watch.readings == {}, "no program has a GPU open"
    use(computer.folder, 1)
    await watch.look()
    assert [*watch.readings] == [UUIDS[0]], "the other one sleeps"
    watch.readings.clear()
    computer.sleeps(FIRST)
    await watch.look()
    assert watch.readings == {}
    use(computer.folder, 0)
    computer.sleeps(FIRST, "active")
    computer.tasks = {UUIDS[0]: [OURS]}
    await watch.look()
    assert [*watch.readings] == [UUIDS[0]], "a task has it"


async def test_use_by_the_owner_withholds_a_gpu_until_it_is_quiet(
    computer: Computer, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(computer.folder, 1)
    watch = computer.watch()
    assert watch.withheld(computer.gpus[0]) == "its use is not known yet"
    computer.says(f"{WORKING}use {FIRST} {OWNER} 1 3 0\n")
    await watch.look()
    assert watch.withheld(computer.gpus[0]) == "", "a compositor is no use"
    computer.says(f"{WORKING}use {FIRST} {OWNER} 1 90 0\n")
    await watch.look()
    assert watch.withheld(computer.gpus[0]) == IN_USE
    computer.says(WORKING)
    await watch.look()
    assert watch.withheld(computer.gpus[0]) == IN_USE, "a game may be loading"
    monkeypatch.setattr(gpu_watch, "_QUIET_S", 0.0)
    await watch.look()
    assert watch.withheld(computer.gpus[0]) == ""


async def test_load_of_its_own_task_is_no_use_by_the_owner(computer: Computer) -> None:
    computer.tasks = {UUIDS[0]: [OURS]}
    computer.says(f"{WORKING}use {FIRST} {OURS} 1 100 0\n")
    watch = computer.watch()
    for _ in range(3):
        await watch.look()
    assert watch.withheld(computer.gpus[0]) == watch.must_leave(computer.gpus[0]) == ""
    computer.says(f"{WORKING}use {FIRST} {OURS} 1 50 0\nuse {FIRST} {OWNER} 1 0 40\n")
    await watch.look()
    await watch.read(computer.gpus[:1])  # as after a failed task, which may share the GPU
    assert watch.must_leave(computer.gpus[0]) == "", "one burst of a video call ends no task"
    await watch.look()
    assert watch.must_leave(computer.gpus[0]) == IN_USE


async def test_process_that_has_ended_does_not_use_a_gpu(computer: Computer) -> None:
    use(computer.folder, 1)
    ended = subprocess.Popen(["true"])
    ended.wait()
    computer.says(f"{WORKING}use {FIRST} {ended.pid} 1 90 0\n")
    watch = computer.watch()
    await watch.look()
    assert watch.withheld(computer.gpus[0]) == "", "it may have been a task's"


async def test_use_is_not_measured_in_a_container(computer: Computer) -> None:
    use(computer.folder, 1)
    write(computer.folder / ".dockerenv")
    write(computer.folder / "proc/2/comm", "sh")
    watch = computer.watch()
    await watch.look()
    assert watch.withheld(computer.gpus[0]) == UNMEASURED


async def test_gpu_whose_use_is_not_measured_counts_as_used_unless_dedicated(
    computer: Computer, libraries: Mapping[str, str]
) -> None:
    use(computer.folder, 1)
    old = NvmlReader(libraries["old"])
    watch, dedicated = computer.watch(reader=old), computer.watch(reader=old, is_dedicated=True)
    await watch.look()
    await dedicated.look()
    assert watch.withheld(computer.gpus[0]) == UNMEASURED
    assert dedicated.withheld(computer.gpus[0]) == ""
    computer.tasks = {UUIDS[0]: [OURS]}
    await watch.look()
    assert watch.must_leave(computer.gpus[0]) == "", "its task stays"
    use(computer.folder, 0)
    computer.tasks = {}
    await watch.look()
    assert watch.withheld(computer.gpus[0]) == "", "no program has it open"


async def test_load_of_an_amd_gpu_counts_while_no_task_has_it(tmp_path: Path, libraries: Mapping[str, str]) -> None:
    add_amd(tmp_path)
    busy = tmp_path / "sys/class/drm/renderD128/device/gpu_busy_percent"
    write(busy, "80\n")
    gpus, tasks = find_gpus(tmp_path), dict[str, Sequence[int]]()
    watch = GpuWatch(lambda: gpus, lambda: tasks, is_dedicated=False, root=tmp_path)
    await watch.look()
    assert watch.withheld(gpus[0]) == IN_USE
    busy.unlink()
    await watch.look()
    assert watch.withheld(gpus[0]) == UNMEASURED
    tasks = {gpus[0].gpu.id: [OURS]}
    write(busy, "100\n")
    for _ in range(3):
        await watch.look()
    assert watch.must_leave(gpus[0]) == ""


class Recorder:
    """The agent, as the wing sees it."""

    is_wanted = True

    def __init__(self) -> None:
        self.posted: list[Any] = []
        self.offered: list[Any] = []
        self.reports = 0

    def post(self, event: Any) -> None:
        self.posted.append(event)

    def speak(self) -> None:
        self.reports += 1

    def log_start(self, run: Any) -> None:
        pass

    def offer(self, resource: Any) -> None:
        self.offered.append(resource)


def offering(computer: Computer, bench: Bench, **options: Any) -> tuple[Gpus, Recorder]:
    known = KnownGpus(computer.folder / "gpus.json")
    wing = Gpus(
        computer.gpus, GpuLocks(computer.folder), known, reader=computer.reader, root=computer.folder, **options
    )
    agent = Recorder()
    wing.attach(agent)
    bench.runner._wings = (wing,)
    return wing, agent


async def test_memory_is_reported_once_it_is_known_and_kept(computer: Computer, bench: Bench) -> None:
    use(computer.folder, 1)
    wing, agent = offering(computer, bench)
    assert [gpu.memory_bytes for gpu in wing.resource.gpus] == [0, 0]
    for _ in range(2):
        await wing.watch.look()
        wing.on_reading()
    (offered,) = agent.offered
    assert [gpu.memory_bytes for gpu in offered.gpus] == [16 * 10**9, 0]
    again, _ = offering(computer, bench)
    assert [gpu.memory_bytes for gpu in again.resource.gpus] == [16 * 10**9, 0]
    write(computer.folder / "gpus.json", "[nonsense")
    assert offering(computer, bench)[0].resource.gpus[0].memory_bytes == 0


async def test_task_that_fails_with_its_gpu_is_given_back(computer: Computer, bench: Bench) -> None:
    offering(computer, bench)
    fails = run_of("sh", "-c", "exit 1", gpus=UUIDS[:1])
    assert (await bench.result(fails)).outcome is Outcome.FAILED, "the GPU works"
    run = run_of("sh", "-c", "touch begun; while [ ! -e go ]; do sleep 0.01; done; exit 1", task=2, gpus=UUIDS[:1])
    await bench.begins(run)
    computer.says(f"gpu {FIRST} 15 1 8 6 0\n")
    (bench.scratch / str(run.attempt) / "go").touch()
    result = await bench.end_of(run)
    assert result.outcome is Outcome.GIVEN_BACK
    assert result.reason == "GPU 0: out of service: it is lost: it has fallen off the bus"


async def test_processes_of_a_task_do_not_count_as_the_owners(computer: Computer, bench: Bench) -> None:
    wing, agent = offering(computer, bench)
    run = run_of("sh", "-c", "sleep 600 & touch begun; wait", gpus=UUIDS[:1])
    await bench.begins(run)
    own = wing._tasks()[UUIDS[0]]
    assert len([*own]) >= 2
    uses = "".join(f"use {FIRST} {pid} 1 90 0\n" for pid in own)
    computer.says(WORKING + uses)
    for _ in range(3):
        await wing.watch.look()
        wing.on_reading()
    assert agent.posted[-1] == CheckedGpu(run.attempt, "", 60.0)
    computer.says(f"{WORKING}{uses}use {FIRST} 1 1 50 0\n")
    for _ in range(2):
        await wing.watch.look()
        wing.on_reading()
    assert agent.posted[-1] == CheckedGpu(run.attempt, f"GPU 0: {IN_USE}", 60.0)
    assert agent.reports > 0
    bench.runner.cancel(run.attempt)
    await bench.end_of(run)
    await until(lambda: not wing._parts)
    assert wing._tasks() == {}
    assert isinstance(run.attempt, AttemptId)


async def test_use_by_a_task_that_shares_a_gpu_is_not_the_owners(computer: Computer, bench: Bench) -> None:
    """Not even when the other task of the GPU fails."""
    computer.gpus = [replace(each, gpu=replace(each.gpu, shares=2)) for each in computer.gpus]
    wing, _ = offering(computer, bench)
    run = run_of("sh", "-c", "touch begun; sleep 600", gpus=UUIDS[:1])
    await bench.begins(run)
    uses = "".join(f"use {FIRST} {pid} 1 90 0\n" for pid in wing._tasks()[UUIDS[0]])
    computer.says(WORKING + uses)
    for task in (2, 3):
        fails = run_of("sh", "-c", "exit 1", task=task, gpus=UUIDS[:1])
        assert (await bench.result(fails)).outcome is Outcome.FAILED
        assert wing.watch.withheld(computer.gpus[0]) == wing.watch.must_leave(computer.gpus[0]) == ""
    bench.runner.cancel(run.attempt)
    await bench.end_of(run)
