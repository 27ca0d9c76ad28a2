"""What finished attempts have shown, and what follows for those to come: speeds, sizes, finish times."""
