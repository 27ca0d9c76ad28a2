"""The kernel: jobs, tasks, attempts, workers, the hold and a policy. It knows no optional feature."""
