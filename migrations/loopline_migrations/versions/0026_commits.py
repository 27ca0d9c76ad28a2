"""The number of commits, and their server: a database that went back to an earlier state shows it."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("mastership", sa.Column("commits", WHOLE, nullable=False, server_default="0"))
    op.add_column("mastership", sa.Column("server", sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("mastership") as table:
        table.drop_column("server")
        table.drop_column("commits")
