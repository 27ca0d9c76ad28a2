"""Planning of starts: a profile of what is taken when, scans of it, and the grounds on which jobs are placed.

Source: the rack paper (Maruyama et al.). The live scheduler plans gangs with it, and ``simulate rack`` rectangles.
"""
