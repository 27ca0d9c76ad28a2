"""Carrying out a policy: eligibility of workers, placement, prefetching, and retracting what was prefetched."""
