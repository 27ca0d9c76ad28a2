"""Presence of the owner: when this computer was last used, as seen by several probes.

``probe`` is the interface, with a file for each system's way to tell. ``idle_detector`` combines their readings: the
least idle one counts, and if no probe can vouch for the desktop, the computer counts as in use.
"""
