from __future__ import annotations

from loopline_shared.rest.bodies import PruneReport
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, ok

REPORT = PruneReport(
    deleted=False, job_count=2, jobs=[3, 4], files=7, bytes=2_000_000, uploads=1, upload_bytes=5,
    older_than_s=0.0, grace_s=86400.0,
)  # fmt: skip


def test_prune_shows_files_to_remove(fake: FakeMaster, run: Run) -> None:
    fake.on("POST /prune", ok(REPORT))
    ran = run("prune", "--older-than", "30d")
    assert fake.asked("POST /prune")[0].body == {"older_than_s": 30 * 86400, "delete": False}
    assert "7 files (2.0 MB) to be removed" in ran.out
    assert "1 unfinished upload" in ran.out
    assert "2 jobs (3, 4)" in ran.out
    assert "nothing has been removed: add --delete to remove them" in ran.out


def test_prune_removes_files_with_delete(fake: FakeMaster, run: Run) -> None:
    fake.on("POST /prune", ok(REPORT.model_copy(update={"deleted": True})))
    ran = run("prune", "--delete")
    assert fake.asked("POST /prune")[0].body == {"older_than_s": None, "delete": True}
    assert "7 files (2.0 MB) removed" in ran.out
    assert "add --delete to remove them" not in ran.out
    assert run("prune", "--json").document["files"] == 7
