"""The user's side: chains, quorums and ledgers, files, functions, notifications.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
REAL = sa.Double()
JOB_STATES = "'queued', 'running', 'succeeded', 'failed', 'cancelled'"
ADDED: dict[str, dict[str, tuple[Any, str | None]]] = {  # its value in rows that are there already; None: NULL
    "jobs": {
        "inputs": (sa.Text(), None),
        "waiting_for": (sa.Text(), "[]"),
        "entered_at": (REAL, None),
        "log_mean": (REAL, "0"),
        "log_m2": (REAL, "0"),
        "mismatches": (WHOLE, "0"),
        "useful_cpu_ms": (WHOLE, "0"),
        "replicated_cpu_ms": (WHOLE, "0"),
        "won_cpu_ms": (WHOLE, "0"),
        "wasted_cpu_ms": (WHOLE, "0"),
        "lost_cpu_ms": (WHOLE, "0"),
    },
    "tasks": {"votes": (sa.Text(), "[]"), "mismatch": (sa.Boolean(), sa.false()), "verdict": (sa.Text(), "")},
    "attempts": {
        "asked": (sa.Boolean(), sa.false()),
        "assumed_cpu_ms": (WHOLE, "0"),
        "late": (sa.Boolean(), sa.false()),
        "outputs": (sa.Text(), None),
        "value": (sa.Text(), None),
    },
    "workers": {"mismatches": (WHOLE, "0")},
}


def upgrade() -> None:
    for table, columns in ADDED.items():
        with op.batch_alter_table(table) as batch:
            for name, (kind, value) in columns.items():
                batch.add_column(sa.Column(name, kind, nullable=value is None, server_default=value))
        with op.batch_alter_table(table) as batch:  # from now on the code says what it is
            for name, (_, value) in columns.items():
                if value is not None:
                    batch.alter_column(name, server_default=None)
    op.execute("UPDATE jobs SET entered_at = submitted_at")
    _allow_job_states(f"'waiting', {JOB_STATES}")
    where = {"sqlite_where": sa.text("late = 1"), "postgresql_where": sa.text("late")}
    op.create_index("ix_attempts_late", "attempts", ["job"], **where)
    op.create_table(
        "forecasts",
        sa.Column("job", WHOLE, sa.ForeignKey("jobs.id", name="fk_forecasts_job"), nullable=False),
        sa.Column("arrival", WHOLE, nullable=False),
        sa.Column("moment", sa.Integer(), nullable=False),
        sa.Column("at", REAL, nullable=False),
        sa.Column("p50_at", REAL, nullable=False),
        sa.Column("p90_at", REAL, nullable=False),
        sa.Column("model_p50_s", REAL, nullable=False),
        sa.Column("model_p90_s", REAL, nullable=False),
        sa.PrimaryKeyConstraint("job", "arrival", "moment", name="pk_forecasts"),
    )
    op.create_index("ix_forecasts_at", "forecasts", ["at"])
    op.create_table(
        "removals",
        sa.Column("job", WHOLE, sa.ForeignKey("jobs.id", name="fk_removals_job"), nullable=False),
        sa.Column("at", REAL, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job", name="pk_removals"),
    )
    op.create_table(
        "notifications",
        sa.Column("job", WHOLE, nullable=False, autoincrement=False),
        sa.Column("departure", WHOLE, nullable=False, autoincrement=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("at", REAL, nullable=False),
        sa.Column("tries", WHOLE, nullable=False),
        sa.Column("next_at", REAL, nullable=True),
        sa.Column("done_at", REAL, nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job", "departure", name="pk_notifications"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_notifications_job"),
    )
    op.create_index("ix_notifications_next_at", "notifications", ["next_at"])


def downgrade() -> None:
    op.drop_table("notifications")
    op.drop_table("removals")
    op.drop_table("forecasts")
    op.drop_index("ix_attempts_late", "attempts")
    op.execute("UPDATE jobs SET state = 'cancelled', departure = 0 WHERE state = 'waiting'")
    _allow_job_states(JOB_STATES)
    for table, columns in ADDED.items():
        with op.batch_alter_table(table) as batch:
            for name in columns:
                batch.drop_column(name)


def _allow_job_states(states: str) -> None:
    with op.batch_alter_table("jobs") as batch:
        batch.drop_constraint(op.f("ck_jobs_state"), type_="check")
        batch.create_check_constraint(op.f("ck_jobs_state"), f'"state" IN ({states})')
