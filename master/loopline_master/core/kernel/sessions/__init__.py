"""Sessions of workers: joining, Reports, Assigns, leases."""
