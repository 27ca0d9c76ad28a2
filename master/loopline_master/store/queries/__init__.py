"""Queries for users: one file for each subject, all on committed rows."""
