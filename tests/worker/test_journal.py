"""The journal that a killed agent leaves to the next one."""

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_shared.model import AttemptId, Outcome, Output, Result
from loopline_shared.protocol import link_session
from loopline_shared.protocol.worker_link import NAMES_OF_SECRETS, Assign, Run
from loopline_worker.core.instructions import Entry
from loopline_worker.state import journal as journal_module
from loopline_worker.state.journal import Journal

A, B, C = (AttemptId(1, task, 1) for task in (1, 2, 3))


def run(attempt: AttemptId, command: str = "true") -> Run:
    return Run(attempt, (command,), {"i": 1, "name": "ä\n"}, {"KEY": "value"}, timeout_s=1.5)


def result(attempt: AttemptId) -> Result:
    return Result(attempt, Outcome.FAILED, -9, "why\r\n", 1.5, 0.5, 9, Output(3, data=b"\xff\x00a"))


def assign(*attempts: AttemptId, cancel: tuple[AttemptId, ...] = ()) -> list[tuple[Assign, bytes]]:
    message = Assign(1, 0, tuple(run(attempt) for attempt in attempts), cancel)
    return [(message, link_session.encode(message))]


State = tuple[list[Run], list[AttemptId], list[Result]]


def state(journal: Journal) -> State:
    return journal.waiting, journal.begun, journal.results


def reopened(journal: Journal, path: Path) -> Journal:
    """Reopen as after a kill -9: without flush and close."""
    left = state(journal)
    again = Journal(path)
    assert state(again) == left
    return again


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def test_journal_keeps_the_life_while_it_has_entries(path: Path) -> None:
    journal = Journal(path)
    journal.write(Entry(life="one"))
    journal.rest()
    assert path.read_bytes() == b""
    journal.write(Entry(came=assign(A, B), began=[B]))
    assert reopened(journal, path).life == "one"
    journal.write(Entry([result(B)], over=[A, B], life="two"))
    assert state(journal) == ([], [], []), "a result of another life is dropped at once"
    again = reopened(journal, path)
    assert (again.life, state(again)) == ("two", ([], [], []))


def test_reopened_journal_has_unfinished_attempts_in_order(path: Path) -> None:
    journal = Journal(path)
    journal.write(Entry(came=assign(B, A)))
    journal.write(Entry(came=assign(C, A), began=[B]))
    journal = reopened(journal, path)
    assert state(journal) == ([run(A), run(C)], [B], [])
    journal.write(Entry(results=[result(B)], began=[A]))
    journal = reopened(journal, path)
    assert state(journal) == ([run(C)], [A], [result(B)])
    journal.write(Entry(over=[B, A, C]))
    journal.rest()
    assert path.read_bytes() == b"", "the journal of an idle worker is empty"
    assert state(reopened(journal, path)) == ([], [], [])


def test_run_cancelled_in_the_same_assign_is_not_written(path: Path) -> None:
    journal = Journal(path)
    journal.write(Entry(came=assign(A, B, cancel=(A,))))
    assert state(reopened(journal, path)) == ([run(B)], [], [])


def test_a_run_with_secrets_is_not_written(path: Path) -> None:
    journal = Journal(path)
    secret = replace(run(A), environment={"KEY": "hush", NAMES_OF_SECRETS: "KEY"})
    message = Assign(1, 0, (secret, run(B)))
    journal.write(Entry(came=[(message, link_session.encode(message))]))
    journal.write(Entry(began=[A]))
    assert b"hush" not in path.read_bytes()
    assert state(reopened(journal, path)) == ([run(B)], [A], [])


def test_changed_result_keeps_its_position(path: Path) -> None:
    """The master refused its long output, so only the beginning is sent."""
    journal = Journal(path)
    journal.write(Entry(results=[result(A), result(B)]))
    journal.write(Entry(results=[replace(result(A), reason="shorter")]))
    assert reopened(journal, path).results == [replace(result(A), reason="shorter"), result(B)]


def test_entries_of_one_step_are_written_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, written = Journal(path), []
    append = Journal._append
    monkeypatch.setattr(Journal, "_append", lambda journal, lines: (written.append(lines), append(journal, lines)))
    journal.write(Entry(came=assign(A, B, C), began=[A, B]))
    journal.write(Entry(results=[result(A), result(B)], began=[C]))
    journal.write(Entry(over=[AttemptId(9, 9, 9)]))
    journal.write(Entry(came=assign()))
    assert len(written) == 2


def test_incomplete_line_does_not_affect_the_next(path: Path) -> None:
    journal = Journal(path)
    journal.write(Entry(came=assign(A)))
    with path.open("ab") as file:
        file.write(b'{"came":{"seq":1,"run":[{"attempt":"1.2.1","comm')
    journal = Journal(path)
    journal.write(Entry(came=assign(C)))
    assert state(reopened(journal, path)) == ([run(A), run(C)], [], [])


def test_invalid_line_is_skipped(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A power failure may leave zeros."""
    journal = Journal(path)
    journal.write(Entry(came=assign(A)))
    with path.open("ab") as file:
        file.write(bytes(100) + b"\n")
    journal.write(Entry(results=[result(B)]))
    assert state(Journal(path)) == ([run(A)], [], [result(B)])
    assert "passed over" in caplog.text


def test_journal_does_not_grow_with_finished_attempts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_WORTH_CLEANING_BYTES", 2000)
    journal = Journal(path)
    journal.write(Entry(came=assign(A, B), began=[B], results=[result(C)]))
    for number in range(1, 200):
        attempt = AttemptId(2, number, 1)
        journal.write(Entry(came=assign(attempt), began=[attempt]))
        journal.write(Entry(results=[result(attempt)]))
        journal.write(Entry(over=[attempt]))
    assert path.stat().st_size < 5000
    assert state(reopened(journal, path)) == ([run(A)], [B], [result(C)])
    journal.write(Entry(over=[A, B, C]))
    assert journal.live_bytes == 0


def test_one_long_run_does_not_cause_a_cleanup_per_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a frame is divided evenly among its runs, which may be inaccurate."""
    monkeypatch.setattr(journal_module, "_WORTH_CLEANING_BYTES", 2000)
    cleaned, clean = list[None](), Journal._clean
    monkeypatch.setattr(Journal, "_clean", lambda journal: cleaned.append(clean(journal)))
    journal = Journal(path)
    short = [AttemptId(1, task, 1) for task in range(2, 100)]
    message = Assign(1, 0, (run(A, "x" * 50_000), *map(run, short)))
    journal.write(Entry(came=[(message, link_session.encode(message))]))
    journal.write(Entry(over=short))
    for task in range(100):
        journal.write(Entry(results=[result(AttemptId(2, task, 1))]))
        journal.write(Entry(over=[AttemptId(2, task, 1)]))
    assert len(cleaned) < 5
    assert state(reopened(journal, path)) == ([run(A, "x" * 50_000)], [], [])


def test_cleanup_without_a_free_descriptor_keeps_the_journal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(path)
    journal.write(Entry(came=assign(A, B)))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as scarce:
        scarce.setattr(journal_module, "_WORTH_CLEANING_BYTES", 10)
        scarce.setattr(journal, "live_bytes", 0)
        scarce.setattr(journal, "_reopen", refuse)
        journal.write(Entry(began=[A]))
        with pytest.raises(OSError, match="Too many"):
            journal.write(Entry(began=[B]))
    journal.write(Entry(results=[result(A)]))
    assert state(reopened(journal, path)) == ([run(B)], [], [result(A)])


def test_attempts_can_be_finished_on_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(path)
    journal.write(Entry(came=assign(A, B), results=[result(C)]))

    def refuse(lines: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space")

    with monkeypatch.context() as full:
        full.setattr(journal, "_append", refuse)
        with pytest.raises(OSError, match="No space"):
            journal.write(Entry(over=[A, B, C]))
    assert (state(journal), journal.live_bytes) == (([], [], []), 0)
    journal.rest()
    assert path.read_bytes() == b""


def test_failed_write_raises_and_leaves_no_partial_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(path)
    journal.write(Entry(came=assign(A)))
    whole = path.read_bytes()

    class Full:
        def write(self, lines: bytes) -> int:
            return real.write(lines[:10])

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    real = journal._file
    monkeypatch.setattr(journal, "_file", Full())
    with pytest.raises(OSError, match="No space"):
        journal.write(Entry(came=assign(B), results=[result(C)]))
    assert path.read_bytes() == whole
    assert state(journal) == ([run(A)], [], [])


class Model:
    """A simple model of the state of each attempt."""

    def __init__(self) -> None:
        self.attempts: dict[AttemptId, str] = {}

    def came(self, attempts: tuple[AttemptId, ...]) -> None:
        for attempt in attempts:
            self.attempts.setdefault(attempt, "waiting")

    def began(self, attempts: tuple[AttemptId, ...]) -> None:
        self.attempts |= {attempt: "begun" for attempt in attempts if self.attempts.get(attempt) != "result"}

    def results(self, attempts: tuple[AttemptId, ...]) -> None:
        for attempt in attempts:
            self.attempts[attempt] = "result"

    def over(self, attempts: tuple[AttemptId, ...]) -> None:
        for attempt in attempts:
            self.attempts.pop(attempt, None)

    def of(self, what: str) -> set[AttemptId]:
        return {attempt for attempt, known in self.attempts.items() if known == what}


ids = st.lists(st.sampled_from([AttemptId(1, task, 1) for task in range(1, 6)]), min_size=1, max_size=3, unique=True)
events = st.lists(st.tuples(st.sampled_from(["came", "began", "results", "over"]), ids.map(tuple)), max_size=12)
ARGUMENT: dict[str, Callable[[tuple[AttemptId, ...]], Any]] = {
    "came": lambda attempts: assign(*attempts),
    "began": list,
    "results": lambda attempts: [result(attempt) for attempt in attempts],
    "over": list,
}


@given(events, st.data())
def test_any_prefix_of_the_journal_is_a_prefix_of_the_history(
    story: list[tuple[str, tuple[AttemptId, ...]]], data: st.DataObject
) -> None:
    """Truncated at any byte: complete lines count, one per event (and per result); the rest is ignored."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        journal, model = Journal(path), Model()
        states: list[dict[AttemptId, str]] = [{}]
        for what, attempts in story:
            journal.write(Entry(**{what: ARGUMENT[what](attempts)}))
            for step in [(attempt,) for attempt in attempts] if what == "results" else [attempts]:
                getattr(model, what)(step)
                if what != "over" or any(attempt in states[-1] for attempt in step):
                    states.append(dict(model.attempts))
        whole = path.read_bytes()
        torn = whole[: data.draw(st.integers(0, len(whole)), label="bytes left")]
        path.write_bytes(torn)
        left = Journal(path)
        model.attempts = states[torn.count(b"\n")]
        assert {run.attempt for run in left.waiting} == model.of("waiting")
        assert set(left.begun) == model.of("begun")
        assert {result.attempt for result in left.results} == model.of("result")
        assert path.read_bytes() == torn[: torn.rfind(b"\n") + 1]


def test_life_that_failed_to_be_written_is_written_before_its_entries(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next agent would assign a result to the previous life and drop it."""

    def refuse(lines: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space")

    journal = Journal(path)
    journal.write(Entry([result(A)], came=assign(C), life="one"))
    with monkeypatch.context() as full:
        full.setattr(journal, "_append", refuse)
        with pytest.raises(OSError, match="No space"):
            journal.write(Entry(over=[A, C], life="two"))
    journal.write(Entry([result(B)]))
    again = reopened(journal, path)
    assert (again.life, again.results) == ("two", [result(B)])
