"""Checkpoints that are kept of a gang's members, which save at unlike rates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loopline_master.core.wings.checkpoints.checkpoints_wing import KEPT
from loopline_master.core.wings.checkpoints.gang_checkpoints import cuts, worth_keeping
from loopline_master.core.wings.checkpoints.saved_work import SavedCheckpoint
from loopline_shared.model import AttemptId

NODES = 2


def saved(attempt: int, step: int) -> SavedCheckpoint:
    return SavedCheckpoint(
        1, 1, f"{attempt:032x}{step:032x}", attempt=attempt, worker=f"w{attempt}", line=(), taken_at=0.0,
        work=float(step), cpu_s=float(step), wall_s=float(step), times=0, size_bytes=1, sent_bytes=1, step=step,
    )  # fmt: skip


@given(fast=st.integers(0, 3), slow=st.integers(4, 7), late=st.floats(0.01, 0.99), rounds=st.integers(1, 5))
def test_members_whose_uploads_take_unlike_times_have_cuts(fast: int, slow: int, late: float, rounds: int) -> None:
    """The slow member's upload of a step arrives as late as just before its next one."""
    alive, kept = {AttemptId(1, 1, 1), AttemptId(1, 1, 2)}, list[SavedCheckpoint]()

    def keep(one: SavedCheckpoint) -> None:
        found = sorted([*kept, one], key=lambda other: (other.attempt, other.step or 0))
        whole = cuts(found, NODES)
        kept[:] = worth_keeping(found, whole[-1] if whole else (), alive, KEPT)

    for step in range(1, (rounds << slow) + int((1 << slow) * late) + 1):
        if step % (1 << fast) == 0:
            keep(saved(1, step))
        due = step - int((1 << slow) * late)
        if due > 0 and due % (1 << slow) == 0:
            keep(saved(2, due))
            assert cuts(kept, NODES)[-1][0].step == due
        assert len(kept) <= 2 * (KEPT + 1) + 10
