"""Files on their way through a tree of switches, after Takahashi et al.: fluid flows, and the master's planner."""
