"""An audit log; tokens that expire, their last use, and the role of a token for Prometheus."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ROLES = ("admin", "user", "reader", "worker")


def upgrade() -> None:
    op.create_table(
        "audit_log",
        sa.Column("id", WHOLE, autoincrement=True, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("did", sa.Text(), nullable=False),
        sa.Column("on", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )
    op.create_index(op.f("ix_audit_log_at"), "audit_log", ["at"])
    with op.batch_alter_table("tokens") as batch:
        batch.add_column(sa.Column("expires_at", sa.Double()))
        batch.add_column(sa.Column("used_at", sa.Double()))
        batch.add_column(sa.Column("used_from", sa.Text(), nullable=False, server_default=""))
    _allow((*ROLES, "scraper"))
    with op.batch_alter_table("tokens") as batch:  # from now on the code says what it is
        batch.alter_column("used_from", server_default=None)


def downgrade() -> None:
    op.execute("DELETE FROM tokens WHERE role = 'scraper'")
    _allow(ROLES)
    with op.batch_alter_table("tokens") as batch:
        for column in ("used_from", "used_at", "expires_at"):
            batch.drop_column(column)
    op.drop_table("audit_log")


def _allow(roles: tuple[str, ...]) -> None:
    condition = " OR ".join(f"\"role\" = '{role}'" for role in roles)
    with op.batch_alter_table("tokens") as batch:
        batch.drop_constraint(op.f("ck_tokens_role"), type_="check")
        batch.create_check_constraint(op.f("ck_tokens_role"), sa.text(condition))
