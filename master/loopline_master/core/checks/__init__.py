"""Checks of the invariants: all of them for tests, and a sample for a running master."""
