"""Bounds on what each client may take of the master: rates, and time of its event loop."""
