"""The reason of a worker's drain, as its operator gave it."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    with op.batch_alter_table("workers") as batch:
        batch.add_column(sa.Column("drain_reason", sa.Text(), nullable=False, server_default=""))
    with op.batch_alter_table("workers") as batch:  # from now on the code says what it is
        batch.alter_column("drain_reason", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("workers") as batch:
        batch.drop_column("drain_reason")
