"""Answers of the master as people see them on a terminal."""
