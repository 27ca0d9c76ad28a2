"""Files between this computer and a master, by the SHA-256 of their content."""
