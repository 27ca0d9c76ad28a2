"""The master's answers as text for a terminal."""
