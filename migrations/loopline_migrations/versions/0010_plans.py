"""Gangs that wait have plans, whose rows stay; and the grid counts what gangs used of their limits."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
COUNTS = ("gangs_came", "plan_cursor_job")
SECONDS = ("gang_limits_s", "gang_ran_s", "gang_allowed_s")
KINDS = ("promise", "estimate")


def upgrade() -> None:
    op.create_table(
        "plans",
        sa.Column("job", WHOLE, sa.ForeignKey("jobs.id", name=op.f("fk_plans_job")), nullable=False),
        sa.Column("task", WHOLE, nullable=False),
        sa.Column("start", sa.Double(), nullable=True),
        sa.Column("machines", sa.Text(), nullable=False),
        sa.Column("slots", WHOLE, nullable=False),
        sa.Column("limit_s", sa.Double(), nullable=False),
        sa.Column("is_given", sa.Boolean(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("told_at", sa.Double(), nullable=False),
        sa.Column("first_start", sa.Double(), nullable=True),
        sa.Column("p50", sa.Double(), nullable=True),
        sa.Column("p90", sa.Double(), nullable=True),
        sa.Column("earliest", sa.Double(), nullable=False),
        sa.Column("earliest_p50", sa.Double(), nullable=False),
        sa.Column("is_bounded", sa.Boolean(), nullable=False),
        sa.Column("behind", WHOLE, nullable=True),
        sa.Column("changed_at", sa.Double(), nullable=True),
        sa.Column("moves", WHOLE, nullable=False),
        sa.Column("broken", WHOLE, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("withdrawn_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("job", "task", name=op.f("pk_plans")),
        sa.CheckConstraint(" OR ".join(f"\"kind\" = '{kind}'" for kind in KINDS), name=op.f("ck_plans_kind")),
    )
    with op.batch_alter_table("grid") as batch:
        for name in COUNTS:
            batch.add_column(sa.Column(name, WHOLE, nullable=False, server_default="0"))
        for name in SECONDS:
            batch.add_column(sa.Column(name, sa.Double(), nullable=False, server_default="0"))
        batch.add_column(sa.Column("plan_cursor", WHOLE, nullable=True))
        batch.add_column(sa.Column("plan_again", sa.Boolean(), nullable=False, server_default=sa.false()))
    with op.batch_alter_table("grid") as batch:  # from now on the code says what they are
        for name in (*COUNTS, *SECONDS, "plan_again"):
            batch.alter_column(name, server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("grid") as batch:
        for name in (*COUNTS, *SECONDS, "plan_cursor", "plan_again"):
            batch.drop_column(name)
    op.drop_table("plans")
