"""Is imported once by the process that daemons are forked from."""

from tests.live.daemons import imported

imported()
