"""The decisions of a worker, free of I/O, clocks and randomness."""
