"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TASK_STATES = "'queued', 'running', 'succeeded', 'failed', 'cancelled'"
ATTEMPT_STATES = "'dispatched', 'running', 'succeeded', 'failed', 'cancelling', 'cancelled', 'lost'"


def whole(name: str, *, null: bool = False) -> sa.Column[int]:
    return sa.Column(name, WHOLE, nullable=null, autoincrement=False)


def real(name: str, *, null: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=null)


def text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=null)


def flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean(), nullable=False)


def upgrade() -> None:
    op.create_table(
        "grid",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        whole("next_job"),
        whole("sequence"),
        whole("pointer"),
        real("now"),
        sa.CheckConstraint("id = 1", name=op.f("ck_grid_one_row")),
        sa.PrimaryKeyConstraint("id", name="pk_grid"),
    )
    op.create_table(
        "jobs",
        whole("id"),
        text("owner"),
        whole("task_count"),
        real("size", null=True),
        text("order"),
        whole("max_attempts"),
        whole("max_replicas", null=True),
        whole("arrival"),
        real("submitted_at"),
        text("idempotency_key", null=True),
        text("state"),
        flag("paused"),
        real("starved_since", null=True),
        flag("stalled"),
        whole("cursor"),
        whole("running"),
        whole("succeeded"),
        whole("failed"),
        real("held_at", null=True),
        real("released_at", null=True),
        real("started_at", null=True),
        real("finished_at", null=True),
        whole("departure", null=True),
        sa.CheckConstraint("\"order\" IN ('hold', 'none')", name=op.f("ck_jobs_order")),
        sa.CheckConstraint(f'"state" IN ({TASK_STATES})', name=op.f("ck_jobs_state")),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("owner", "idempotency_key", name="uq_jobs_owner_idempotency_key"),
    )
    op.create_index("ix_jobs_departure_arrival_size", "jobs", ["departure", "arrival", "size"])
    op.create_index("ix_jobs_owner_id", "jobs", ["owner", "id"])
    op.create_index("ix_jobs_state_id", "jobs", ["state", "id"])
    op.create_table(
        "specs",
        whole("job"),
        text("name"),
        text("spec"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_specs_job"),
        sa.PrimaryKeyConstraint("job", name="pk_specs"),
    )
    op.create_table(
        "tasks",
        whole("job"),
        whole("number"),
        text("state"),
        flag("started"),
        whole("attempts"),
        whole("failures"),
        whole("winner", null=True),
        real("started_at", null=True),
        real("finished_at", null=True),
        sa.CheckConstraint(f'"state" IN ({TASK_STATES})', name=op.f("ck_tasks_state")),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_tasks_job"),
        sa.PrimaryKeyConstraint("job", "number", name="pk_tasks"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_tasks_job_state_number", "tasks", ["job", "state", "number"])
    op.create_index("ix_tasks_job_finished_at_number", "tasks", ["job", "finished_at", "number"])
    op.create_table(
        "attempts",
        whole("job"),
        whole("task"),
        whole("number"),
        text("worker"),
        whole("slots"),
        flag("replica"),
        real("dispatched_at"),
        text("state"),
        whole("sent"),
        real("started_at", null=True),
        real("ended_at", null=True),
        flag("accepted"),
        whole("exit_code", null=True),
        text("reason"),
        real("wall_s"),
        real("cpu_s"),
        whole("peak_memory_bytes"),
        text("stdout", null=True),
        text("stderr", null=True),
        sa.CheckConstraint(f'"state" IN ({ATTEMPT_STATES})', name=op.f("ck_attempts_state")),
        sa.ForeignKeyConstraint(["job", "task"], ["tasks.job", "tasks.number"], name="fk_attempts_job_task"),
        sa.PrimaryKeyConstraint("job", "task", "number", name="pk_attempts"),
    )
    op.create_index("ix_attempts_state_worker", "attempts", ["state", "worker"])
    op.create_index("ix_attempts_ended_at", "attempts", ["ended_at"])
    op.create_table(
        "workers",
        text("name"),
        text("boot"),
        text("facts"),
        real("joined_at"),
        real("lease_until"),
        whole("session", null=True),
        flag("draining"),
        text("load", null=True),
        real("reported_at", null=True),
        whole("offered"),
        whole("reported"),
        whole("assigned"),
        sa.PrimaryKeyConstraint("name", name="pk_workers"),
    )
    op.create_table(
        "exemptions",
        whole("job"),
        whole("predecessor"),
        text("reason"),
        real("at"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_exemptions_job"),
        sa.PrimaryKeyConstraint("job", "predecessor", "at", name="pk_exemptions"),
    )
    op.create_table(
        "audits",
        whole("job"),
        whole("arrival"),
        whole("departure"),
        real("at"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_audits_job"),
        sa.PrimaryKeyConstraint("job", "arrival", name="pk_audits"),
    )
    op.create_table(
        "passings",
        whole("job"),
        whole("arrival"),
        whole("passed"),
        text("reason", null=True),
        real("at"),
        sa.ForeignKeyConstraint(["job", "arrival"], ["audits.job", "audits.arrival"], name="fk_passings_job_arrival"),
        sa.ForeignKeyConstraint(["passed"], ["jobs.id"], name="fk_passings_passed"),
        sa.PrimaryKeyConstraint("job", "arrival", "passed", name="pk_passings"),
    )
    op.create_index("ix_passings_at", "passings", ["at"])
    op.create_table(
        "event_log",
        sa.Column("seq", WHOLE, nullable=False, autoincrement=True),
        real("at"),
        text("batch"),
        sa.PrimaryKeyConstraint("seq", name="pk_event_log"),
    )
    op.create_table(
        "tokens",
        text("id"),
        text("name"),
        text("role"),
        text("hash"),
        real("created_at"),
        real("revoked_at", null=True),
        sa.CheckConstraint("\"role\" IN ('admin', 'user', 'reader', 'worker')", name=op.f("ck_tokens_role")),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("hash", name="uq_tokens_hash"),
    )


def downgrade() -> None:
    names = "tokens event_log passings audits exemptions workers attempts tasks specs jobs grid"
    for table in names.split():
        op.drop_table(table)
