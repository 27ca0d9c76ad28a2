"""Gangs: several launches of one task at a time, where its job asks for replicas."""

from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    _key_by("job", "task", "first")


def downgrade() -> None:
    """Go back. Members of replicas count as lost."""
    op.execute("""
        UPDATE attempts SET state = 'lost'
        WHERE state IN ('dispatched', 'prepared', 'running', 'frozen', 'finished') AND EXISTS (
            SELECT 1 FROM gangs AS replica JOIN jobs ON jobs.id = replica.job
            JOIN gangs AS earlier ON earlier.job = replica.job AND earlier.task = replica.task
            WHERE replica.job = attempts.job AND replica.task = attempts.task AND earlier."first" < replica."first"
            AND attempts.number >= replica."first" AND attempts.number < replica."first" + jobs.nodes
        )
    """)
    op.execute("""
        DELETE FROM gangs WHERE EXISTS (
            SELECT 1 FROM gangs AS earlier
            WHERE earlier.job = gangs.job AND earlier.task = gangs.task AND earlier."first" < gangs."first"
        )
    """)
    _key_by("job", "task")


def _key_by(*columns: str) -> None:
    key = op.f("pk_gangs")
    with op.batch_alter_table("gangs") as batch:
        batch.drop_constraint(key, type_="primary")
        batch.create_primary_key(key, list(columns))
