"""The processor is contended when processes wait for it while programs of normal priority use it."""

from pathlib import Path

import pytest

from loopline_worker.host.contention import Contention


class Proc:
    """A computer of two cores whose counters a test moves on."""

    def __init__(self, folder: Path, has_pressure: bool = True) -> None:
        self.folder, self.now = folder, 100.0
        self._waited_us, self._user, self._nice, self._idle = 10**6, 1000, 1000, 1000
        self._has_pressure = has_pressure
        (folder / "pressure").mkdir()
        self.agent_s = 0.0
        self.contention = Contention(2.0, folder, lambda: self.agent_s)
        self.passes(0.1)

    def passes(self, waited: float, user: float = 0.0, nice: float = 0.0, times: int = 1) -> bool:
        """Sample after 0.1 s with these shares of it; ``user`` and ``nice`` in cores."""
        self.now += 0.1
        self._waited_us += round(waited * 1e5)
        self._user, self._nice = self._user + round(user * 10), self._nice + round(nice * 10)
        self._idle += round((2 - user - nice) * 10)
        (self.folder / "stat").write_text(f"cpu  {self._user} {self._nice} 0 {self._idle} 0 0 0 0 0 0\ncpu0 1 1\n")
        if self._has_pressure:
            text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={self._waited_us}\nfull avg10=0 total=0\n"
            (self.folder / "pressure/cpu").write_text(text)
        return self.contention.look(self.now, times)

    @property
    def wanted(self) -> float:
        return self.contention.wanted(self.now)


@pytest.fixture(params=[True, False], ids=["pressure", "without"])
def proc(tmp_path: Path, request: pytest.FixtureRequest) -> Proc:
    return Proc(tmp_path, request.param)


def test_tasks_yield_when_others_compete_for_the_cores(proc: Proc) -> None:
    assert proc.passes(waited=1.0, user=1.0, nice=1.0)
    assert proc.wanted == 2.0, "others get half of the time they want"


def test_competition_among_tasks_is_no_contention(proc: Proc) -> None:
    assert not proc.passes(waited=1.0, user=0.0, nice=2.0)
    assert proc.wanted == 0.0


def test_agent_does_not_count_as_another_program(proc: Proc) -> None:
    """It starts thousands of short tasks a second."""
    proc.agent_s += 0.1
    assert not proc.passes(waited=1.0, user=1.0, nice=1.0)


def test_programs_without_tasks_are_no_contention(proc: Proc) -> None:
    assert not proc.passes(waited=0.0, user=1.0, nice=0.0)


def test_short_contention_does_not_count_without_an_owner(proc: Proc) -> None:
    looks = [proc.passes(1.0, 1.0, 1.0, times=3) for _ in range(2)]
    assert not any([*looks, proc.passes(0.0, 0.0, 2.0, times=3), proc.passes(1.0, 1.0, 1.0, times=3)])
    assert proc.wanted == 0.0
    assert [proc.passes(1.0, 1.0, 1.0, times=3) for _ in range(2)] == [False, True]


def test_pause_grows_with_each_repeated_contention(tmp_path: Path) -> None:
    proc, held = Proc(tmp_path), []
    for _ in range(3):
        assert proc.passes(1.0, 1.0, 1.0)
        since = proc.now
        while proc.wanted:
            proc.passes(0.0, 1.0, 0.0)
        held.append(round(proc.now - since))
    assert held == [2, 4, 8]
    for _ in range(60):
        proc.passes(0.0, 0.0, 2.0)
    assert proc.passes(1.0, 1.0, 1.0)
    proc.now += 2.1
    assert proc.wanted == 0.0, "after a calm the first pause is short again"


def test_samples_from_before_a_pause_do_not_count(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.contention.forget()
    assert not proc.passes(1.0, 1.0, 1.0)
    assert proc.passes(1.0, 1.0, 1.0)


def test_unreadable_counters_mean_no_contention(tmp_path: Path) -> None:
    contention = Contention(2.0, tmp_path / "none")
    assert not contention.look(1.0)
    assert not contention.look(2.0)
