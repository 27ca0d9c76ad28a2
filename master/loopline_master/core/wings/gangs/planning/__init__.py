"""Planning of starts: a profile of occupation over time, scans of it, and the grounds where jobs are placed.

Source: the rack paper (Maruyama et al.). The live scheduler plans gangs with it, and ``simulate rack`` rectangles.
"""
