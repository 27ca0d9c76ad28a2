"""Telling people and programs that a job is over: an outbox on disk, and who empties it."""
