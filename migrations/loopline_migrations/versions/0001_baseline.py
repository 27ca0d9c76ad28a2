"""Create the tables of the code, as they are today.

Nothing has been released, so a changed table needs no migration yet. With the first release this file is frozen: see
CONTRIBUTING.md, "Make a release".
"""

from alembic import op

from loopline_master.store.tables import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)


def downgrade() -> None:
    metadata.drop_all(op.get_bind())
