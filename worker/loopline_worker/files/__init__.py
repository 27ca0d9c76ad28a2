"""Files of tasks: fetched and cached by content, brought into scratch folders, and uploaded from there."""
