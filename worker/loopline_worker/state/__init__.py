"""What outlives the agent: the journal, the spool, the data directory."""
