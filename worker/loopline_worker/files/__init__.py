"""Files of tasks: downloaded and cached by content, staged into scratch folders, and uploaded from there."""
