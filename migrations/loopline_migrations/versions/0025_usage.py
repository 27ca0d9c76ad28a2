"""Sums of what was used for jobs that are forgotten: by user and by worker, for each day."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
COUNTS = ("jobs", "attempts", "tasks")
TIMES = ("wall_s", "useful_cpu_s", "replicated_cpu_s", "wasted_cpu_s", "lost_cpu_s")


def upgrade() -> None:
    op.create_table(
        "usage",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("day", WHOLE, autoincrement=False, nullable=False),
        *(sa.Column(name, WHOLE, nullable=False) for name in COUNTS),
        *(sa.Column(name, sa.Double(), nullable=False) for name in TIMES),
        sa.PrimaryKeyConstraint("kind", "name", "day", name=op.f("pk_usage")),
    )


def downgrade() -> None:
    op.drop_table("usage")
