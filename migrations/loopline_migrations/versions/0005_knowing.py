"""Knowing machines and jobs: queues at workers; programs, sizes predicted, probation."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
REAL = sa.Double()
ADDED: dict[str, dict[str, tuple[Any, Any]]] = {  # of rows that are there already
    "attempts": {
        "waiting": (sa.Boolean(), sa.false()),
        "waited_s": (REAL, "0"),
        "system_s": (REAL, "0"),
        "work": (REAL, "0"),
    },
    "grid": {"last_worker": (sa.Text(), "")},
    "tasks": {"failed_on": (sa.Text(), "[]")},
    "workers": {
        "standing": (REAL, "0"),
        "probations": (WHOLE, "0"),
        "probation_reason": (sa.Text(), ""),
        "on_trial": (sa.Boolean(), sa.false()),
    },
}
SOURCES = "'given', 'predicted', 'unknown'"


def upgrade() -> None:
    for table, columns in ADDED.items():
        with op.batch_alter_table(table) as batch:
            for name, (kind, value) in columns.items():
                batch.add_column(sa.Column(name, kind, nullable=False, server_default=value))
        with op.batch_alter_table(table) as batch:  # from now on the code says what it is
            for name in columns:
                batch.alter_column(name, server_default=None)
    _add_probations()
    _add_sizes()
    _make_programs()


def downgrade() -> None:
    op.drop_table("programs")
    with op.batch_alter_table("jobs") as batch:
        batch.drop_constraint(op.f("ck_jobs_size_source"), type_="check")
        batch.drop_column("size_source")
        batch.drop_column("predicted")
    with op.batch_alter_table("workers") as batch:
        batch.drop_column("probation_until")
    for table, columns in ADDED.items():
        with op.batch_alter_table(table) as batch:
            for name in columns:
                batch.drop_column(name)


def _add_probations() -> None:
    with op.batch_alter_table("workers") as batch:
        batch.add_column(sa.Column("probation_until", REAL, nullable=True))


def _add_sizes() -> None:
    """Add columns of sizes. The sizes of jobs that are there already were given by their users."""
    with op.batch_alter_table("jobs") as batch:
        batch.add_column(sa.Column("size_source", sa.Text(), nullable=False, server_default="unknown"))
        batch.add_column(sa.Column("predicted", sa.Text(), nullable=True))
    op.execute("UPDATE jobs SET size_source = 'given' WHERE size IS NOT NULL")
    with op.batch_alter_table("jobs") as batch:
        batch.alter_column("size_source", server_default=None)
        batch.create_check_constraint(op.f("ck_jobs_size_source"), f'"size_source" IN ({SOURCES})')


def _make_programs() -> None:
    op.create_table(
        "programs",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("first_run_at", REAL, nullable=False),
        sa.Column("used_at", REAL, nullable=False),
        sa.Column("runs", WHOLE, nullable=False),
        sa.Column("window", sa.Text(), nullable=False),
        sa.Column("strange", WHOLE, nullable=False),
        sa.Column("changed_at", REAL, nullable=True),
        sa.Column("recorded", REAL, nullable=True),
        sa.PrimaryKeyConstraint("owner", "name", "folder", name="pk_programs"),
    )
    op.create_index("ix_programs_used_at", "programs", ["used_at"])
