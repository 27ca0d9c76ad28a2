"""A later release: its second migration rebuilds one table with an additional column."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from loopline_master.store import migrate

SECOND = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    with op.batch_alter_table("workers", recreate="always") as table:
        table.add_column(sa.Column("shade", sa.Text(), nullable=True))
    op.execute("UPDATE workers SET shade = name, work_s = work_s + 1000, work_done = work_done + 400")


def downgrade():
    op.execute("UPDATE workers SET work_s = work_s - 1000, work_done = work_done - 400")
    with op.batch_alter_table("workers", recreate="always") as table:
        table.drop_column("shade")
"""


def install_next_release(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the rest of this test run as the release that has both migrations; its scripts go below ``folder``."""
    scripts = folder / "migrations"
    shutil.copytree(migrate.SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / "0002_second.py").write_text(SECOND)
    monkeypatch.setattr(migrate, "SCRIPTS", scripts)
    monkeypatch.setattr(migrate, "REVISION", "0002")
