"""The fast world: the live scheduler and computers of fluctuating speed, for tables of many runs."""
