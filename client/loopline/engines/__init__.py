"""Engines on the grid: clusters of other programs, each as one gang, for those who outgrow independent tasks."""
