"""The database's history: one file a change, applied by the master when it starts (loopline_master/store/migrate.py).

After changing an entity or ``store/tables.py``, write ``versions/<number>_<change>.py`` in the manner of
script.py.mako: ``tests/store/test_migrations.py`` says what is still missing, on SQLite and on PostgreSQL, and
runs it up and down on a filled database.
"""
