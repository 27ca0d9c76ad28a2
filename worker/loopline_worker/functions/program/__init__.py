"""What runs in a task's own interpreter: standard library only, for it is copied there alone."""
