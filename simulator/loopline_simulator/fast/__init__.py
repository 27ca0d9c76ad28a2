"""The fast world: the live scheduler and computers whose speed fluctuates, for tables of many runs."""
