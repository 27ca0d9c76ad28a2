"""Files that go between workers: lists of pieces, grants, and who is to take a file from whom."""
