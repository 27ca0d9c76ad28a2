"""Imported once by the fork server of daemons."""

from tests.live.daemons import imported

imported()
