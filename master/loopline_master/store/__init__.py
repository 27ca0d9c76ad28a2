"""The master's database: written step by step by one connection, read by several."""

from loopline_master.store.database import StoreBroken
from loopline_master.store.store import Store, open_store

__all__ = ["Store", "StoreBroken", "open_store"]
