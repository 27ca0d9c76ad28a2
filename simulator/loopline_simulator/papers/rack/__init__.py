"""Rectangles in a rack, over time: how a supercomputer's jobs are planned (Maruyama et al.), on our kernel."""
