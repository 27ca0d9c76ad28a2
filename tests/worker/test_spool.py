from pathlib import Path

from loopline_shared.model import AttemptId, Outcome, Output, OutputFile, Result
from loopline_worker.state.journal import Spool

FIRST, SECOND, THIRD = (AttemptId(1, task, 1) for task in (1, 2, 3))
LONG = Output(100, sha256="a" * 64)


def test_leftovers_of_a_crash_are_removed_except_files_of_results(tmp_path: Path) -> None:
    for name in ("1.1.1.stdout", "1.1.1.value", "1.2.1.stdout", "1.2.1.stderr"):
        (tmp_path / name).write_bytes(b"x" * 100)
    spool = Spool(tmp_path, 10**6)
    spool.clear([Result(FIRST, Outcome.SUCCEEDED, 0, stdout=LONG, value=LONG), Result(THIRD, Outcome.SUCCEEDED, 0)])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1.1.1.stdout", "1.1.1.value"]
    spool.forget([FIRST, SECOND])
    assert list(tmp_path.iterdir()) == []


def test_size_of_the_spool_includes_output_files(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    (tmp_path / "1.1.1.files").mkdir()
    (tmp_path / "1.1.1.files" / ("a" * 64)).write_bytes(b"x" * 900)
    spool.keep(Result(FIRST, Outcome.SUCCEEDED, 0, outputs=(OutputFile("x", "a" * 64, 900),)))
    assert (spool.size_bytes, spool.is_full(100), spool.is_full(101)) == (900, False, True)
    spool.forget([FIRST])
    assert (spool.size_bytes, spool.is_full(101)) == (0, False)


def test_forgetting_a_result_removes_its_unused_files(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    (tmp_path / "1.1.1.files").mkdir()
    spool.keep(Result(FIRST, Outcome.GIVEN_BACK, reason="what it was lent is not as it was"))
    spool.forget([FIRST])
    assert list(tmp_path.iterdir()) == []
