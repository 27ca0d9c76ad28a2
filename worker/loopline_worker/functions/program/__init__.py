"""Code that runs in a task's own interpreter: one file, which is copied there, and imports no other of ours."""
