"""Door of the kernel, for optional features."""
