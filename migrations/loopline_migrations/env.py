"""Called by Alembic, inside the transaction of the connection that loopline_master/store/migrate.py hands over."""

from alembic import context

from loopline_master.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a table by making it anew
    compare_type=True,
)
context.run_migrations()
