"""How a scan goes over time: which times it tries, by which algorithm, and what it remembers."""
