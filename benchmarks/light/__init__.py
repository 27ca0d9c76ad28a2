"""Light ends of a grid, for measuring the other end: workers that only talk, a master without features, a slow disk."""
