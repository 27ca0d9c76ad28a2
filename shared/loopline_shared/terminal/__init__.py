"""The beginning of programs: what they keep out of their imports, and the parser of their options."""
