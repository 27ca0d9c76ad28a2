"""Reports as signs of life: leases, what is news, and what is kept back from the scheduler and its log."""
