"""Check states by a chain of comparisons: for a list, SQLite makes a small table with every row."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

ATTEMPTS = ("dispatched", "running", "succeeded", "failed", "cancelling", "cancelled", "lost")
TASKS = ("queued", "running", "succeeded", "failed", "cancelled")
CHECKS = {
    "jobs": {
        "order": ("hold", "deliver", "none"),
        "state": ("waiting", *TASKS),
        "size_source": ("given", "predicted", "unknown"),
    },
    "tasks": {"state": TASKS},
    "attempts": {"state": ATTEMPTS},
    "tokens": {"role": ("admin", "user", "reader", "worker")},
}


def upgrade() -> None:
    _check(lambda column, values: " OR ".join(f"\"{column}\" = '{value}'" for value in values))


def downgrade() -> None:
    _check(lambda column, values: f'"{column}" IN ({", ".join(repr(value) for value in values)})')


def _check(condition) -> None:
    for table, columns in CHECKS.items():
        with op.batch_alter_table(table) as batch:
            for column, values in columns.items():
                batch.drop_constraint(op.f(f"ck_{table}_{column}"), type_="check")
                batch.create_check_constraint(op.f(f"ck_{table}_{column}"), sa.text(condition(column, values)))
