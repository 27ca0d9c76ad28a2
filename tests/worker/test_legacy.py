"""What an agent of release 0.1 left is gone on with."""

from pathlib import Path

import pytest

from loopline_shared.errors import LooplineError
from loopline_shared.model import AttemptId, Outcome, Output, Result
from loopline_shared.protocol import link_session
from loopline_shared.protocol.worker_link import Run
from loopline_worker.state import legacy
from loopline_worker.state.journal import Journal

A, B, C, D = (AttemptId(1, task, 1) for task in (1, 2, 3, 4))
INBOX = b"""{"run":{"attempt":"1.1.1","command":["true"],"parameters":{"i":1},"environment":{}}}
{"run":{"attempt":"1.2.1","command":["true"],"parameters":{},"environment":{}}}
{"began":"1.2.1"}
{"run":{"attempt":"1.3.1","command":["true"],"parameters":{},"environment":{}}}
{"began":"1.3.1"}
{"run":{"attempt":"1.4.1","command":["true"],"parameters":{},"environment":{}}}
{"over":"1.4.1"}
{"run":{"attempt":"1.5.1","comm"""
RESULT = Result(C, Outcome.SUCCEEDED, 0, stdout=Output(3, data=b"\xff\x00a"))


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    (tmp_path / "inbox.jsonl").write_bytes(INBOX)
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "1.3.1.json").write_bytes(link_session.write_result(RESULT))
    (spool / "1.2.1.json").write_bytes(link_session.write_result(RESULT))
    (spool / "notes.json").write_text("{}")
    return spool


def test_all_of_it_is_in_the_ledger_and_the_old_files_are_gone(spool: Path, tmp_path: Path) -> None:
    for _ in range(2):  # the second time there is nothing more to take over
        journal = Journal(tmp_path / "ledger.jsonl")
        legacy.take_over(journal, tmp_path / "inbox.jsonl", spool)
        assert journal.waiting == [Run(A, ("true",), {"i": 1}, {})]
        assert (journal.begun, journal.results) == ([B], [RESULT])
        assert not (tmp_path / "inbox.jsonl").exists()
    assert sorted(file.name for file in (spool / "bad").iterdir()) == ["1.2.1.json", "notes.json"]
    assert not list(spool.glob("*.json"))


def test_where_the_disk_takes_nothing_all_is_as_it_was(spool: Path, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "ledger.jsonl")
    journal._file = Path("/dev/full").open("ab", 0)  # noqa: SIM115
    with pytest.raises(LooplineError, match="No space left"):
        legacy.take_over(journal, tmp_path / "inbox.jsonl", spool)
    assert (spool / "1.3.1.json").exists()
    assert (tmp_path / "inbox.jsonl").read_bytes() == INBOX
