"""State that outlives the agent: the journal, the spool, the data directory."""
