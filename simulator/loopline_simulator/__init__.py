"""The simulator: the live master's own scheduler, driven through virtual time."""
