"""What a master's own user does for its data: copies of all of it, and whether its files are whole."""
