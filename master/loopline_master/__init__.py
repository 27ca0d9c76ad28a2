"""The master: keeps the jobs, decides what runs where, and forgets nothing that it acknowledged."""
