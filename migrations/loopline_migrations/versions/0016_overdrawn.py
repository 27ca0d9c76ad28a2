"""Jobs that have used many times their size; what jobs from before had used is not known."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    with op.batch_alter_table("jobs") as batch:
        batch.add_column(sa.Column("used", sa.Double(), nullable=False, server_default="0"))
        batch.add_column(sa.Column("overdrawn", sa.Boolean(), nullable=False, server_default=sa.false()))
    with op.batch_alter_table("grid") as batch:
        batch.add_column(sa.Column("looked_at", sa.Double(), nullable=False, server_default="0"))
    with op.batch_alter_table("jobs") as batch:  # from now on the code says what they are
        batch.alter_column("used", server_default=None)
        batch.alter_column("overdrawn", server_default=None)
    with op.batch_alter_table("grid") as batch:
        batch.alter_column("looked_at", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("jobs") as batch:
        batch.drop_column("overdrawn")
        batch.drop_column("used")
    with op.batch_alter_table("grid") as batch:
        batch.drop_column("looked_at")
