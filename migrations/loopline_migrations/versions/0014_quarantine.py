"""A worker's health and quarantine have the words of the field; two counters that nothing reads any more go."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

RENAMED = {
    "standing": "health",
    "probations": "quarantines",
    "probation_until": "quarantined_until",
    "probation_reason": "quarantine_reason",
    "on_trial": "half_open",
}


def upgrade() -> None:
    _rename(RENAMED)
    with op.batch_alter_table("grid") as batch:
        for name in ("share", "log_share"):
            batch.drop_column(name)


def downgrade() -> None:
    with op.batch_alter_table("grid") as batch:
        batch.add_column(sa.Column("share", sa.Double(), nullable=False, server_default="1"))
        batch.add_column(sa.Column("log_share", sa.Double(), nullable=False, server_default="0"))
    with op.batch_alter_table("grid") as batch:  # from now on the code says what they are
        for name in ("share", "log_share"):
            batch.alter_column(name, server_default=None)
    _rename({new: old for old, new in RENAMED.items()})


def _rename(names: dict[str, str]) -> None:
    with op.batch_alter_table("workers") as batch:
        for old, new in names.items():
            batch.alter_column(old, new_column_name=new)
