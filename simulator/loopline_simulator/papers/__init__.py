"""Models of papers that reproduce published tables. They share the kernel, and do not use the scheduler."""
