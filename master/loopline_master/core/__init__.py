"""The scheduler, pure: events in, effects out. No I/O, no clock, no randomness of its own.

The live master, the simulator and the property tests drive the same ``Scheduler``.
"""
