"""Of each task, the workers whose agents died while it ran there."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    with op.batch_alter_table("tasks") as batch:
        batch.add_column(sa.Column("took_down", sa.Text(), nullable=False, server_default="[]"))
    with op.batch_alter_table("tasks") as batch:  # from now on the code says what it is
        batch.alter_column("took_down", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("tasks") as batch:
        batch.drop_column("took_down")
