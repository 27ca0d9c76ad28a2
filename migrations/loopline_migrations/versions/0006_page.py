"""Add tables that the page draws: freezes of attempts and samples of workers, with indexes by time."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "samples",
        sa.Column("minute", WHOLE, nullable=False, autoincrement=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("spare_cpu", sa.Double(), nullable=False),
        *(sa.Column(name, WHOLE, nullable=False) for name in ("slots", "used", "in_use", "frozen")),
        sa.PrimaryKeyConstraint("minute", "worker", name="pk_samples"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_samples_worker_minute", "samples", ["worker", "minute"])
    with op.batch_alter_table("attempts") as batch:
        batch.add_column(sa.Column("freezes", sa.Text(), nullable=False, server_default="[]"))
    with op.batch_alter_table("attempts") as batch:
        batch.alter_column("freezes", server_default=None)
    op.drop_index("ix_attempts_ended_at", "attempts")
    op.create_index("ix_attempts_ended_at_dispatched_at", "attempts", ["ended_at", "dispatched_at"])
    op.create_index("ix_attempts_dispatched_at", "attempts", ["dispatched_at"])
    op.create_index("ix_jobs_held_at", "jobs", ["held_at"])


def downgrade() -> None:
    op.drop_index("ix_jobs_held_at", "jobs")
    op.drop_index("ix_attempts_dispatched_at", "attempts")
    op.drop_index("ix_attempts_ended_at_dispatched_at", "attempts")
    op.create_index("ix_attempts_ended_at", "attempts", ["ended_at"])
    with op.batch_alter_table("attempts") as batch:
        batch.drop_column("freezes")
    op.drop_table("samples")
