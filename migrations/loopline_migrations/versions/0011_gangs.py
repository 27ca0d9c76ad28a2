"""Gangs: parallel tasks, and the states that their members have beside those of other attempts."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

OLD = (
    "dispatched", "prefetched", "running", "frozen", "succeeded", "failed", "cancelling", "retracting", "cancelled",
    "lost",
)  # fmt: skip
NEW = (
    "dispatched", "prefetched", "prepared", "running", "frozen", "finished", "succeeded", "failed", "cancelling",
    "retracting", "cancelled", "lost",
)  # fmt: skip
WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
PHASES = ("preparing", "running", "halted")


def upgrade() -> None:
    _allow(NEW)
    with op.batch_alter_table("jobs") as batch:
        batch.add_column(sa.Column("nodes", WHOLE, nullable=False, server_default="1"))
    with op.batch_alter_table("jobs") as batch:  # from now on the code says how many
        batch.alter_column("nodes", server_default=None)
    op.create_table(
        "gangs",
        sa.Column("job", WHOLE, autoincrement=False, nullable=False),
        sa.Column("task", WHOLE, autoincrement=False, nullable=False),
        sa.Column("workers", sa.Text(), nullable=False),
        sa.Column("slots", WHOLE, nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("first", WHOLE, nullable=False),
        sa.Column("rendezvous", sa.Text(), nullable=False),
        sa.Column("culprits", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job", "task", name=op.f("pk_gangs")),
        sa.CheckConstraint(_one_of("phase", PHASES), name=op.f("ck_gangs_phase")),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name=op.f("fk_gangs_job")),
    )


def downgrade() -> None:
    """Go back. Members of gangs that are at work count as lost, and their jobs are run again."""
    op.execute("UPDATE attempts SET state = 'lost' WHERE state IN ('prepared', 'finished')")
    op.drop_table("gangs")
    with op.batch_alter_table("jobs") as batch:
        batch.drop_column("nodes")
    _allow(OLD)


def _allow(states: tuple[str, ...]) -> None:
    name = op.f("ck_attempts_state")
    with op.batch_alter_table("attempts") as batch:
        batch.drop_constraint(name, type_="check")
        batch.create_check_constraint(name, sa.text(_one_of("state", states)))


def _one_of(column: str, values: tuple[str, ...]) -> str:
    return " OR ".join(f"\"{column}\" = '{value}'" for value in values)
