"""Plans keep what was first promised or estimated, why a promise was broken, and how often an estimate was late."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    with op.batch_alter_table("plans") as batch:
        batch.add_column(sa.Column("promised", sa.Double(), nullable=True))
        batch.add_column(sa.Column("broken_reason", sa.Text(), nullable=False, server_default=""))
        batch.add_column(sa.Column("first_p50", sa.Double(), nullable=True))
        batch.add_column(sa.Column("delays", WHOLE, nullable=False, server_default="0"))
    op.execute("UPDATE plans SET promised = start WHERE kind = 'promise' AND broken = 0")
    with op.batch_alter_table("plans") as batch:  # from now on the code says what they are
        batch.alter_column("broken_reason", server_default=None)
        batch.alter_column("delays", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("plans") as batch:
        for name in ("promised", "broken_reason", "first_p50", "delays"):
            batch.drop_column(name)
