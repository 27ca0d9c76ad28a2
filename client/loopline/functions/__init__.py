"""Calls of Python functions on the grid: pickled, submitted as jobs, and their results as futures."""
