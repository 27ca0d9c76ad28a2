"""Scans over time: which times they try, by which algorithm, and what they remember."""
