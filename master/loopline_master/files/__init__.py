"""Files on the master's disk: by content, as rows of a sweep, as archives, and for how long they are retained."""
