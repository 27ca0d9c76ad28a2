"""The beginning of programs: what they keep out of their imports, the parser of their options, and their streams."""
