"""Care of a master's data, by its own user: copies of all of it, and whether its files are whole."""
