"""Models of papers that do not use the scheduler: they reproduce tables, and share the kernel only."""
