"""Old history: what its rows leave behind."""
