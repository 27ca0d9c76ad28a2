"""The parser of programs that are started from a terminal."""
