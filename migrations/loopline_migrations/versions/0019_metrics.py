"""Metrics: names and numbers that tasks leave with their results."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.add_column("attempts", sa.Column("metrics", sa.Text()))


def downgrade() -> None:
    op.drop_column("attempts", "metrics")
