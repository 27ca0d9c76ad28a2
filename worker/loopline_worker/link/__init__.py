"""The link to the master: one WebSocket at a time, opened again whenever it is lost."""
