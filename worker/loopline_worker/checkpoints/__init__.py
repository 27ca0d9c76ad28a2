"""Checkpoints of tasks: taken while they run and as they end, kept here, sent to the master, and resumed from."""
