"""Accounts of users: what each has used of their share. Who has submitted a job before begins with none used."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("share", sa.Double(), nullable=False),
        sa.Column("usage", sa.Double(), nullable=False),
        sa.Column("usage_at", sa.Double(), nullable=False),
        sa.Column("at_work", sa.BigInteger(), nullable=False),
        sa.Column("pointer", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_users")),
    )
    op.execute("INSERT INTO users SELECT DISTINCT owner, 1.0, 0.0, 0.0, 0, 0 FROM jobs")


def downgrade() -> None:
    op.drop_table("users")
