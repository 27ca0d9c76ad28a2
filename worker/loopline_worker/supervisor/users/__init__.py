"""Users of the tasks' own, one for each slot, where a service starts the worker that may give them."""
