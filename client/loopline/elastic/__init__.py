"""Workers that come and go with the work: what could start now, and allocations of an engine for it."""
