"""Files that go between workers: one open port, sources that follow one another, and a check of every piece."""
