"""Code of other processes than the agent's: the zygote, which forks a supervisor for each slot, and the supervisor.

A supervisor starts and reaps one task after the other. Both processes run isolated (``-I -S``), so that everything
here imports the standard library only; an import contract keeps it so. The agent imports some of it, such as the
framing of messages.
"""
