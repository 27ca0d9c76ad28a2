"""Sums of the attempts of large jobs, for so many tasks each: of all workers, and of each."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
COUNTS = ("attempts", "tasks")
USED = ("wall_s", "useful_cpu_s", "replicated_cpu_s", "wasted_cpu_s", "lost_cpu_s")


def upgrade() -> None:
    op.create_table(
        "job_sums",
        sa.Column("job", WHOLE, autoincrement=False, nullable=False),
        sa.Column("piece", WHOLE, autoincrement=False, nullable=False),
        *_each(WHOLE, COUNTS),
        *_each(sa.Double(), USED),
        *_each(WHOLE, ("dispatched", "lost", "failed", "given_back", "replicas_won")),
        *_each(sa.Double(), ("frozen_s", "accepted_s", "slowest_s")),
        *(sa.Column(f"first_{what}_at", sa.Double()) for what in ("dispatched", "ended")),
        *(sa.Column(f"last_{what}_at", sa.Double()) for what in ("dispatched", "ended")),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name=op.f("fk_job_sums_job")),
        sa.PrimaryKeyConstraint("job", "piece", name=op.f("pk_job_sums")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "worker_sums",
        sa.Column("job", WHOLE, autoincrement=False, nullable=False),
        sa.Column("piece", WHOLE, autoincrement=False, nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        *_each(WHOLE, COUNTS),
        *_each(sa.Double(), USED),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name=op.f("fk_worker_sums_job")),
        sa.PrimaryKeyConstraint("job", "piece", "worker", name=op.f("pk_worker_sums")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("worker_sums")
    op.drop_table("job_sums")


def _each(kind: sa.types.TypeEngine, names: tuple[str, ...]) -> list[sa.Column]:
    return [sa.Column(name, kind, nullable=False) for name in names]
