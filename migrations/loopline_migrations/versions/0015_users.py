"""Accounts of users, and the jobs among which each job's order holds. Who has submitted before has used nothing."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("share", sa.Double(), nullable=False),
        sa.Column("usage", sa.Double(), nullable=False),
        sa.Column("usage_at", sa.Double(), nullable=False),
        sa.Column("at_work", WHOLE, nullable=False),
        sa.Column("pointer", WHOLE, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_users")),
    )
    op.execute("INSERT INTO users SELECT DISTINCT owner, 1.0, 0.0, 0.0, 0, 0 FROM jobs")
    with op.batch_alter_table("jobs") as batch:
        batch.add_column(sa.Column("within", sa.Text(), nullable=False, server_default="grid"))
    with op.batch_alter_table("jobs") as batch:  # from now on the code says what it is
        batch.alter_column("within", server_default=None)
        batch.create_check_constraint(op.f("ck_jobs_within"), "\"within\" = 'grid' OR \"within\" = 'user'")


def downgrade() -> None:
    with op.batch_alter_table("jobs") as batch:
        batch.drop_constraint(op.f("ck_jobs_within"), type_="check")
        batch.drop_column("within")
    op.drop_table("users")
