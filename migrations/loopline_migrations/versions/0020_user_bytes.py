"""Bytes that one user has: of the specs of jobs, and of uploaded files. Those from before are not counted."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    with op.batch_alter_table("jobs") as batch:
        batch.add_column(
            sa.Column(
                "spec_bytes", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False, server_default="0"
            )
        )
    with op.batch_alter_table("jobs") as batch:  # from now on the code says what they are
        batch.alter_column("spec_bytes", server_default=None)
    op.create_table(
        "uploads",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_uploads"),
    )


def downgrade() -> None:
    op.drop_table("uploads")
    with op.batch_alter_table("jobs") as batch:
        batch.drop_column("spec_bytes")
