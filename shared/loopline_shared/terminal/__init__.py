"""What programs are started with: the parser of their options, and what they keep out of their imports."""
