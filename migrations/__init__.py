"""The database's history: one file a change, applied by the master when it starts (master/store/migrate.py).

After changing an entity or ``master/store/tables.py``, write ``versions/NNNN_what_changed.py`` by hand, or let
``alembic`` propose it and read every line. The tests compare its outcome with the tables, on SQLite and
PostgreSQL, and run it up and down on a filled database.
"""
