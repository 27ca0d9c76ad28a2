"""Light ends of a grid, to measure the other end by: workers that only talk, a master without features, a slow disk."""
