"""The decisions of a worker, pure: no I/O, no clock, no randomness."""
