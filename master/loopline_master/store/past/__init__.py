"""What a database has been through: its lives, and clocks that were wrong."""
