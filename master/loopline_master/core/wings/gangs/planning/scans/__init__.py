"""Scans over time: the times that they try, the choice of these, and the memory of earlier results."""
