"""Calls of Python functions on the grid: pickled, sent as jobs, and their results as futures."""
