"""Light ends of a grid, to measure the other end by: workers that only talk, a bare master, a slow disk."""
