"""Models of papers. They do not use the scheduler; ``data_transfer`` runs the master's own planner."""
