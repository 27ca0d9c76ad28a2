"""Estimates learnt from finished attempts: speeds of workers, sizes of tasks, finish times of jobs."""
