"""Workloads and machines that others wrote down."""
