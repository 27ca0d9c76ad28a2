"""Past events of a database: its lives, and clocks that were wrong."""
