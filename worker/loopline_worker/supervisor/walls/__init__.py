"""The walls around a task: Landlock, the cell of a slot, and the filter of connections."""
