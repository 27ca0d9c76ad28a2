"""Lives of the database: what workers hold of one that was restored counts no more."""

import time
from secrets import token_hex

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    lives = op.create_table(
        "lives",
        sa.Column("number", WHOLE, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("begun_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_lives")),
    )
    op.bulk_insert(lives, [{"id": token_hex(8), "begun_at": time.time()}])


def downgrade() -> None:
    op.drop_table("lives")
