"""The agent on every computer of the grid: runs attempts as real processes and yields to the owner."""
