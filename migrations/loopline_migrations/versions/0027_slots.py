"""The slot of an attempt, and when its phases were over."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("attempts", sa.Column("slot", WHOLE))
    op.add_column("attempts", sa.Column("phases", sa.Text()))


def downgrade() -> None:
    op.drop_column("attempts", "phases")
    op.drop_column("attempts", "slot")
