"""Who is at the desk: when somebody last touched this computer, by as many witnesses as there are.

``probe`` is the interface, with a file for each system's way to tell; ``desk`` puts their answers together: the
least idle one wins, and where no witness can vouch for the desktop, it counts as in use.
"""
