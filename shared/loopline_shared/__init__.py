"""What master, worker and clients agree on. Imports nothing of theirs."""

__version__ = "0.1.0"
