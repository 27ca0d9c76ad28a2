"""Lookup structures of the scheduler. Each is a function of the entities."""
