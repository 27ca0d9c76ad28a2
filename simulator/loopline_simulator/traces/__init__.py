"""Recorded workloads and machine availability, read from files."""
