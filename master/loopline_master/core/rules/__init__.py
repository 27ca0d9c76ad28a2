"""Rules that no policy can break: the order guarantee, quorum, dependencies, quarantine."""
