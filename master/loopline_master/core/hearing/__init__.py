"""Hearing of workers: leases, and Reports without news, which neither the scheduler nor its log is troubled with."""
