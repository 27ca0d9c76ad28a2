"""Commands on the master's computer that its administrator names in the settings."""
