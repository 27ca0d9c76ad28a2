"""Types and formats that master, worker and clients share. It imports none of them."""

__version__ = "0.2.0.dev0"
