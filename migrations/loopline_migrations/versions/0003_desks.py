"""Computers on people's desks: tokens with which they join; attempts that stand still for their owners."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "join_tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("uses", WHOLE, nullable=False),
        sa.Column("used", WHOLE, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_join_tokens"),
        sa.UniqueConstraint("hash", name="uq_join_tokens_hash"),
    )
    with op.batch_alter_table("tokens") as batch:
        batch.add_column(sa.Column("worker", sa.Text(), nullable=True))
    with op.batch_alter_table("attempts") as batch:
        batch.add_column(sa.Column("frozen", sa.Boolean(), nullable=False, server_default=sa.false()))
    with op.batch_alter_table("attempts") as batch:
        batch.alter_column("frozen", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("attempts") as batch:
        batch.drop_column("frozen")
    with op.batch_alter_table("tokens") as batch:
        batch.drop_column("worker")
    op.drop_table("join_tokens")
