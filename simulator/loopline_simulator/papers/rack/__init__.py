"""Jobs as rectangles in a supercomputer's rack over time, planned as in Maruyama et al., on our kernel."""
