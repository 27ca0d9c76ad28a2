"""Add columns of policy ``fair`` to workers and jobs, and the order ``deliver``."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
REAL = sa.Double()
ADDED: dict[str, dict[str, tuple[sa.types.TypeEngine[float], str]]] = {  # of rows that are there already
    "grid": {
        "last_start": (REAL, "0"),
        "virtual": (REAL, "0"),
        "share": (REAL, "1"),
        "log_share": (REAL, "0"),
        "measured": (WHOLE, "0"),
        "work_accepted": (REAL, "0"),
        "tasks_accepted": (WHOLE, "0"),
    },
    "jobs": {"tag": (REAL, "0"), "work_done": (REAL, "0")},
    "attempts": {"expected_s": (REAL, "0")},
    "workers": {"work_done": (REAL, "0"), "work_s": (REAL, "0")},
}


def upgrade() -> None:
    for table, columns in ADDED.items():
        with op.batch_alter_table(table) as batch:
            for name, (kind, value) in columns.items():
                batch.add_column(sa.Column(name, kind, nullable=False, server_default=value))
        with op.batch_alter_table(table) as batch:  # from now on the code says what it is
            for name in columns:
                batch.alter_column(name, server_default=None)
    _allow_orders("'hold', 'deliver', 'none'")


def downgrade() -> None:
    op.execute("UPDATE jobs SET \"order\" = 'none' WHERE \"order\" = 'deliver'")
    _allow_orders("'hold', 'none'")
    for table, columns in ADDED.items():
        with op.batch_alter_table(table) as batch:
            for name in columns:
                batch.drop_column(name)


def _allow_orders(orders: str) -> None:
    with op.batch_alter_table("jobs") as batch:
        batch.drop_constraint(op.f("ck_jobs_order"), type_="check")
        batch.create_check_constraint(op.f("ck_jobs_order"), f'"order" IN ({orders})')
