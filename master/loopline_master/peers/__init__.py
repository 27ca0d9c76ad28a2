"""Files between workers: lists of pieces, grants, and the sources of each receiver."""
