"""Texts that owners write and read: hours, pauses, program names, terms, figures."""

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_shared.errors import LooplineError
from loopline_shared.model import SpeedSource, Yielded
from loopline_worker.core.hours import Hours
from loopline_worker.core.owner_policy import Policy
from loopline_worker.host import speed
from loopline_worker.host.load import Battery, Pressure, hottest
from loopline_worker.owner import blockers
from loopline_worker.owner.blockers import FOR_GOOD, BlockingPrograms, Pause, PauseEnd, end_of
from loopline_worker.owner.owner_monitor import Preemption, PreemptionHistory, quantile
from loopline_worker.owner.preferences import in_words, preferences_of
from loopline_worker.settings import WorkerSettings

MON, TUE, FRI, SAT, SUN = 0, 1, 4, 5, 6
GIB = 2**30


def at(hours: Hours, weekday: int, clock: str) -> bool:
    hour, minute = clock.split(":")
    return hours.include(weekday, int(hour) * 60 + int(minute))


def test_hours_include_nights_and_weekends() -> None:
    hours = Hours.parse("Mon-Fri 18:00-08:00, sat, sunday")
    assert [at(hours, MON, clock) for clock in ("7:59", "8:00", "17:59", "18:00", "23:59")] == [
        False, False, False, True, True
    ]  # fmt: skip
    assert at(hours, TUE, "07:59")
    assert at(hours, SAT, "07:59")
    assert at(hours, SUN, "23:59")
    assert not at(hours, TUE, "12:00")


def test_hours_may_wrap_into_the_next_week() -> None:
    hours = Hours.parse("sun 22:00-06:00")
    assert at(hours, SUN, "22:00")
    assert at(hours, MON, "05:59")
    assert not at(hours, MON, "06:00")
    assert not at(hours, SUN, "05:59")


def test_days_wrap_round_and_no_hours_mean_any_time() -> None:
    assert at(Hours.parse("fri-mon"), SUN, "3:00")
    assert not at(Hours.parse("fri-mon"), TUE, "3:00")
    assert at(Hours.parse(""), TUE, "3:00")


@given(st.integers(0, 6), st.integers(0, 23), st.integers(0, 23), st.integers(0, 6), st.integers(0, 1439))
def test_any_span_of_hours_includes_exactly_its_times(day: int, start: int, end: int, when: int, minute: int) -> None:
    name = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"][day]
    if start < end:
        inside = when == day and start * 60 <= minute < end * 60
    else:
        inside = (when == day and minute >= start * 60) or (when == (day + 1) % 7 and minute < end * 60)
    assert Hours.parse(f"{name} {start}:00-{end}:00").include(when, minute) == inside


@pytest.mark.parametrize("text", ["lunch", "mon 25:00-3:00", "mon 8:61-9:00", "mon-xyz", "mon 8-9", "-", "fri night"])
def test_invalid_hours_name_the_key(text: str) -> None:
    with pytest.raises(LooplineError) as caught:
        WorkerSettings.load(hours=text)
    assert caught.value.message.startswith("--hours: expected hours such as 'mon-fri 18:00-08:00, sat, sun'")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("policy", "sometimes", "'when-idle', 'spare' or 'always'"),
        ("idle_s", "0", "at least 1"),
        ("grace_s", "soon", "expected a number"),
        ("reserve_cores", "-1", "at least 0"),
        ("owner_port", "70000", "at most 65535"),
    ],
)
def test_invalid_setting_names_the_key(key: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"LOOPLINE_{key.upper()}", value)
    with pytest.raises(LooplineError) as caught:
        WorkerSettings.load()
    assert caught.value.message.startswith(f"LOOPLINE_{key.upper()}: ")
    assert says in caught.value.message


def test_terms_of_default_and_dedicated_computers() -> None:
    preferences = preferences_of(WorkerSettings.load(), 8 * GIB)
    assert (preferences.policy, preferences.idle_s, preferences.reserve_memory_bytes, preferences.on_battery) == (
        "when-idle",
        180,
        GIB,
        False,
    )
    assert preferences_of(WorkerSettings.load(), 64 * GIB).reserve_memory_bytes == 2 * GIB
    assert preferences_of(WorkerSettings.load(reserve_memory_bytes=7), 64 * GIB).reserve_memory_bytes == 7
    dedicated = preferences_of(WorkerSettings.load(dedicated=True), 8 * GIB)
    assert (dedicated.policy, dedicated.on_battery, dedicated.reserve_memory_bytes) == (Policy.ALWAYS, True, 0)
    assert not dedicated.needs_presence


def test_terms_are_described_in_words() -> None:
    settings = WorkerSettings.load(policy="spare", hours="sat", pause_while_running="zoom, obs", grace_s=30)
    words = "\n".join(in_words(settings, preferences_of(settings, 8 * GIB)))
    for part in ("1 more stay free", "1.0 GiB of memory", "frozen for 30 s", "battery", "hours: sat", "zoom, obs"):
        assert part in words
    settings = WorkerSettings.load(dedicated=True)
    assert in_words(settings, preferences_of(settings, 8 * GIB)) == [
        "This computer is dedicated to the grid: tasks run no matter who uses it."
    ]


NOON = time.mktime((2026, 3, 4, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("words", "until"),
    [
        ("1h", NOON + 3600), ("30m", NOON + 1800), ("2d", NOON + 2 * 86400), ("for good", FOR_GOOD),
        ("Until-Tomorrow", time.mktime((2026, 3, 5, 8, 0, 0, 0, 0, -1))),
    ],
)  # fmt: skip
def test_length_of_a_pause_is_parsed(words: str, until: float) -> None:
    assert end_of(words, NOON).at == until


@pytest.mark.parametrize("words", ["", "0h", "h", "1", "soon", "-1h", "1h30"])
def test_invalid_pause_is_refused_with_an_example(words: str) -> None:
    with pytest.raises(ValueError, match="expected a time such as 30m"):
        end_of(words, NOON)


@pytest.mark.parametrize("until", [NOON + 60, FOR_GOOD])
def test_pause_survives_a_restart(tmp_path: Path, until: float) -> None:
    Pause(tmp_path / "pause").set(PauseEnd(until))
    again = Pause(tmp_path / "pause")
    assert again.words(NOON)
    again.clear()
    assert Pause(tmp_path / "pause").words(NOON) == ""


def test_pause_is_described_in_words(tmp_path: Path) -> None:
    pause = Pause(tmp_path / "pause")
    assert pause.words(NOON) == ""
    pause.set(PauseEnd(NOON + 3600))
    assert pause.words(NOON) == time.strftime("until 13:00 %Z", time.localtime(NOON))
    assert pause.words(NOON + 3600) == ""
    pause.set(PauseEnd(FOR_GOOD))
    assert pause.words(NOON) == "for good"


@pytest.mark.parametrize("restarts", ["no", "agent", "computer"])
def test_pause_of_an_hour_lasts_an_hour_when_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: str
) -> None:
    wall, boot, start = NOON, 5000.0, "one"
    monkeypatch.setattr(blockers, "boot_s", lambda: boot)
    monkeypatch.setattr(blockers, "boot_id", lambda: start)
    monkeypatch.setattr(blockers.time, "time", lambda: wall)
    pause = Pause(tmp_path / "pause")
    pause.set(end_of("1h", wall))
    wall, boot = wall - 86400.0 + 600.0, boot + 600.0
    if restarts == "agent":
        pause = Pause(tmp_path / "pause")
    elif restarts == "computer":
        start, boot = "two", 10.0
        pause = Pause(tmp_path / "pause")
        assert pause.left_s(wall) == 3600.0, "at most its intended length"
        return
    assert pause.left_s(wall) == 3000.0
    assert pause.words(wall) == time.strftime("until %H:%M %Z", time.localtime(wall + 3000.0))
    boot += 3000.0
    assert pause.words(wall) == ""


def test_damaged_pause_file_counts_as_a_pause(tmp_path: Path) -> None:
    (tmp_path / "pause").write_text('{"until": "to')
    assert Pause(tmp_path / "pause").words(NOON) == "for good"


def test_program_is_recognized_once_it_has_its_name() -> None:
    names = {1: "bash", 2: "ZOOM.EXE"}
    asked = list[int]()

    def name_of(pid: int) -> str:
        asked.append(pid)
        return names[pid]

    programs = BlockingPrograms(["obs", "zoom"], lambda: list(names), name_of)
    assert programs.found() == "zoom"
    del names[2]
    assert programs.found() == ""
    names[3] = "bash"
    assert programs.found() == ""
    names[3] = "obs"  # a shell has executed the program
    assert programs.found() == "obs"
    names[3] = "bash"
    assert programs.found() == ""
    asked.clear()
    for _ in range(5):
        programs.found()
    assert asked.count(1) == 0, "names of old processes are cached"
    assert BlockingPrograms([], lambda: pytest.fail("it looked in vain")).found() == ""


def test_running_program_is_found() -> None:
    assert BlockingPrograms([psutil.Process().name()]).found()


MAINS, CELL = {"type": "Mains"}, {"type": "Battery"}
MOUSE = {"type": "Battery", "scope": "Device", "status": "Discharging"}


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
@pytest.mark.parametrize(
    ("supplies", "in_use"),
    [
        ([], False),
        ([MAINS | {"online": "1"}], False),
        ([MOUSE], False),
        ([MAINS | {"online": "0"}, MOUSE], False),
        ([MAINS | {"online": "1"}, CELL | {"status": "Discharging"}], False),
        ([MAINS | {"online": "0"}, CELL | {"status": "Discharging"}], True),
        ([MAINS | {"online": "0"}, CELL | {"status": "Unknown"}], True),
        ([MAINS | {"online": "0"}, CELL | {"status": "Charging"}], False),  # by USB
        ([CELL | {"status": "Discharging"}, MOUSE], True),
        ([CELL | {"status": "Full"}], False),
    ],
)
def test_battery_use_is_detected(tmp_path: Path, supplies: list[dict[str, str]], in_use: bool) -> None:
    for number, supply in enumerate(supplies):
        (tmp_path / str(number)).mkdir()
        for name, word in supply.items():
            (tmp_path / str(number) / name).write_text(f"{word}\n")
    assert Battery(tmp_path).is_in_use() == in_use


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_unreadable_battery_is_read_again(tmp_path: Path) -> None:
    battery = Battery(tmp_path / "supplies")
    assert not battery.is_in_use()
    (tmp_path / "supplies" / "BAT0").mkdir(parents=True)
    (tmp_path / "supplies" / "BAT0" / "type").write_text("Battery\n")
    (tmp_path / "supplies" / "BAT0" / "status").write_text("Discharging\n")
    assert battery.is_in_use()


def test_battery_use_is_detected_on_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise FileNotFoundError

    monkeypatch.setattr(sys, "platform", "elsewhere")
    monkeypatch.setattr(psutil, "sensors_battery", broken, raising=False)
    battery = Battery()
    assert not battery.is_in_use()
    for plugged in (True, False, None):
        state = SimpleNamespace(power_plugged=plugged)
        monkeypatch.setattr(psutil, "sensors_battery", lambda state=state: state)
        assert battery.is_in_use() == (plugged is False)


def test_pressure_is_parsed_from_the_kernels_format(tmp_path: Path) -> None:
    (tmp_path / "cpu").write_text("some avg10=12.50 avg60=0.10 avg300=0.09 total=22\nfull avg10=0.00 avg60=0.00\n")
    (tmp_path / "io").write_text("nonsense")
    assert Pressure.now(tmp_path) == Pressure(cpu=12.5)


def test_yield_times_count_only_preemptions_after_an_input() -> None:
    journal = PreemptionHistory()
    assert journal.yielded() == Yielded()
    for took in range(1, 101):
        journal.note(Preemption(0, "", 1, took / 1000, after_input=True))
    journal.note(Preemption(0, "", 1, 99.0, after_input=False))
    assert journal.yielded() == Yielded(100, 0.05, 0.099)
    assert len(journal.recent) == 20


@given(st.lists(st.floats(0, 1e6), min_size=1).map(sorted), st.floats(0.01, 1))
def test_quantile_covers_its_share(ordered: list[float], part: float) -> None:
    value = quantile(ordered, part)
    assert value in ordered
    assert sum(other <= value for other in ordered) >= part * len(ordered) - 1e-9


def test_speed_is_measured_by_the_best_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.009, 0.002, 0.004])
    monkeypatch.setattr(speed, "_timed", lambda: next(times))
    assert speed.measure(3) == 2.0


def test_measured_speed_is_kept_until_the_computer_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = iter([1.5, 2.5, 3.5])
    monkeypatch.setattr(speed, "measure", lambda: next(figures))
    file = tmp_path / "speed.json"
    assert [speed.kept(file, "a processor", 4) for _ in range(2)] == [1.5, 1.5]
    assert speed.kept(file, "another", 4) == 2.5
    file.write_text(json.dumps({"computer": "?"}))
    assert speed.kept(file, "another", 4) == 3.5


def test_speed_has_its_source_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "measure", lambda: 1.5)
    before = time.time()
    first = speed.known(tmp_path / "speed.json", "a processor", 4)
    assert (first.value, first.source) == (1.5, SpeedSource.BENCHMARK)
    assert first.measured_at is not None
    assert before <= first.measured_at <= time.time()
    again = speed.known(tmp_path / "speed.json", "a processor", 4)
    assert again == speed.Speed(1.5, SpeedSource.KEPT, first.measured_at)
    kept = json.loads((tmp_path / "speed.json").read_text())
    for moment in ("soon", -1, None, 1e300):  # written by an older agent or another program
        (tmp_path / "speed.json").write_text(json.dumps({**kept, "measured_at": moment}))
        assert speed.known(tmp_path / "speed.json", "a processor", 4) == speed.Speed(1.5, SpeedSource.KEPT, None)


def test_benchmark_slice_is_constant_work() -> None:
    assert speed._slice() == speed._slice()
    assert speed.measure(2) > 0


def test_hottest_sensor_counts(tmp_path: Path) -> None:
    assert hottest(tmp_path) is None
    for number, text in enumerate(["41000", "83500", "n/a"]):
        zone = tmp_path / f"thermal_zone{number}"
        zone.mkdir()
        (zone / "temp").write_text(f"{text}\n")
    assert hottest(tmp_path) == 83.5
