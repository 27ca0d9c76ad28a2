"""Exemptions: a row for each time in which a job held no other back, in place of one for each job that passed it."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIMES = sa.table("exemptions", *(sa.column(name) for name in ("job", "since", "reason", "until")))
STILL_NEEDED = """
    SELECT DISTINCT exemptions.predecessor, exemptions.at, exemptions.reason
    FROM exemptions JOIN jobs ON jobs.id = exemptions.job WHERE jobs.departure IS NULL
"""
"""Those of jobs that have yet to be audited."""
BEGIN = """
    UPDATE jobs SET exempt_since = (SELECT now FROM grid)
    WHERE state IN ('queued', 'running') AND (paused OR stalled OR overdrawn)
"""
BEGUN = """
    SELECT id, exempt_since, CASE WHEN paused THEN 'paused' WHEN stalled THEN 'stalled' ELSE 'overdrawn' END
    FROM jobs WHERE exempt_since IS NOT NULL
"""
PAIRS = """
    SELECT DISTINCT later.id, exemptions.job, exemptions.reason, later.released_at
    FROM exemptions JOIN jobs AS earlier ON earlier.id = exemptions.job
    JOIN jobs AS later ON later.departure IS NULL AND later.arrival > earlier.arrival AND earlier.arrival != 0
    WHERE later.released_at >= exemptions.since
    AND (exemptions.until IS NULL OR exemptions.until >= later.released_at)
"""


def upgrade() -> None:
    connection = op.get_bind()
    op.add_column("jobs", sa.Column("exempt_since", sa.Double()))
    connection.execute(sa.text(BEGIN))
    ended = {tuple(row): row.at for row in connection.execute(sa.text(STILL_NEEDED))}
    times = ended | {tuple(row): None for row in connection.execute(sa.text(BEGUN))}
    op.drop_table("exemptions")
    op.create_table(
        "exemptions",
        sa.Column("job", WHOLE, autoincrement=False, nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("until", sa.Double()),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name=op.f("fk_exemptions_job")),
        sa.PrimaryKeyConstraint("job", "since", "reason", name=op.f("pk_exemptions")),
    )
    rows = [{"job": job, "since": since, "reason": why, "until": end} for (job, since, why), end in times.items()]
    op.bulk_insert(TIMES, rows)


def downgrade() -> None:
    pairs = [tuple(row) for row in op.get_bind().execute(sa.text(PAIRS))]
    op.drop_table("exemptions")
    made = op.create_table(
        "exemptions",
        sa.Column("job", WHOLE, autoincrement=False, nullable=False),
        sa.Column("predecessor", WHOLE, autoincrement=False, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name=op.f("fk_exemptions_job")),
        sa.PrimaryKeyConstraint("job", "predecessor", "at", name=op.f("pk_exemptions")),
    )
    op.bulk_insert(made, [dict(zip(("job", "predecessor", "reason", "at"), pair, strict=True)) for pair in pairs])
    op.drop_column("jobs", "exempt_since")
