"""Old history, which a master forgets."""
