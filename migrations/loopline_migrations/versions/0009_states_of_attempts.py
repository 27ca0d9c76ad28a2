"""PREFETCHED, FROZEN and RETRACTING are states of an attempt, no longer flags beside one; and upgrades are noted."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

OLD = ("dispatched", "running", "succeeded", "failed", "cancelling", "cancelled", "lost")
NEW = (
    "dispatched", "prefetched", "running", "frozen", "succeeded", "failed", "cancelling", "retracting", "cancelled",
    "lost",
)  # fmt: skip
WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
FLAGS = ("frozen", "waiting")


def upgrade() -> None:
    _allow(NEW)
    op.execute("UPDATE attempts SET state = 'prefetched' WHERE state = 'dispatched' AND waiting")
    op.execute("UPDATE attempts SET state = 'retracting' WHERE state = 'cancelling' AND waiting")
    op.execute("UPDATE attempts SET state = 'frozen' WHERE state = 'running' AND frozen")
    with op.batch_alter_table("attempts") as batch:
        for flag in FLAGS:
            batch.drop_column(flag)
    op.create_table(
        "upgrades",
        sa.Column("after", WHOLE, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("snapshot", sa.Text(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("upgrades")
    with op.batch_alter_table("attempts") as batch:
        for flag in FLAGS:
            batch.add_column(sa.Column(flag, sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute("UPDATE attempts SET waiting = true WHERE state IN ('prefetched', 'retracting')")
    op.execute("UPDATE attempts SET frozen = true WHERE state = 'frozen'")
    op.execute("UPDATE attempts SET state = 'dispatched' WHERE state = 'prefetched'")
    op.execute("UPDATE attempts SET state = 'cancelling' WHERE state = 'retracting'")
    op.execute("UPDATE attempts SET state = 'running' WHERE state = 'frozen'")
    _allow(OLD)
    with op.batch_alter_table("attempts") as batch:  # from now on the code says what they are
        for flag in FLAGS:
            batch.alter_column(flag, server_default=None)


def _allow(states: tuple[str, ...]) -> None:
    name = op.f("ck_attempts_state")
    with op.batch_alter_table("attempts") as batch:
        batch.drop_constraint(name, type_="check")
        batch.create_check_constraint(name, sa.text(" OR ".join(f"\"state\" = '{state}'" for state in states)))
