"""Which of several masters writes: its epoch, and when it was last heard of."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "mastership",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("epoch", WHOLE, nullable=False),
        sa.Column("beat_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mastership")),
    )


def downgrade() -> None:
    op.drop_table("mastership")
