"""Workers that come and go with demand: tasks that could start now, and allocations of an engine for them."""
