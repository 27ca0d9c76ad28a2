"""The wing *resources*: limits of the grid and its users, resources of workers, and jobs' own limits."""
