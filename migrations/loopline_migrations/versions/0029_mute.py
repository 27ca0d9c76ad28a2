"""Sources that are mute: until when, and since when one has not been heard."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.add_column("carriers", sa.Column("mute_until", sa.Double()))
    op.add_column("carriers", sa.Column("unheard_since", sa.Double()))


def downgrade() -> None:
    op.drop_column("carriers", "unheard_since")
    op.drop_column("carriers", "mute_until")
