"""Indexes, in which the scheduler looks things up. Each is a function of the entities as they are."""
