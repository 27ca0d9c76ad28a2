"""Types and formats that master, worker and clients share. It imports none of them."""

__version__ = "0.1.0.dev0"
