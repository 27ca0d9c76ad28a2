"""Database engines: SQLite in a thread of its own, PostgreSQL by SQLAlchemy."""
