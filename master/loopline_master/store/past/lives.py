"""Lives of a database: one begins when it is made, and with every restore.

A restored database does not know what happened after the backup, and gives again what it gave then: numbers of
attempts, and of jobs beyond the gap that a restore leaves. So all that workers hold is of a life, and counts in that
life alone (loopline_worker/core/kept_results.py).
"""

from __future__ import annotations

import time
from secrets import token_hex

from sqlalchemy import Connection, insert, select

from loopline_master.store.tables import lives


def begin_life(connection: Connection) -> None:
    """Begin another life."""
    connection.execute(insert(lives).values(id=token_hex(8), begun_at=time.time()))


def current_life(connection: Connection) -> str:
    """Return the id of the life that the database is in; empty if it never began one."""
    return connection.scalar(select(lives.c.id).order_by(lives.c.number.desc()).limit(1)) or ""
