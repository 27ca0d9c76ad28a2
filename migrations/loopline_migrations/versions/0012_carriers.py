"""Carriers: what workers have and fetch of large files, and from whom they are planned to take them."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "carriers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("has", sa.Text(), nullable=False),
        sa.Column("fetching", sa.Text(), nullable=False),
        sa.Column("failed", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_carriers")),
    )


def downgrade() -> None:
    """Go back. Workers tell anew what they have."""
    op.drop_table("carriers")
