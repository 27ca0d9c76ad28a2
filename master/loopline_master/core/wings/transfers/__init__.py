"""Which copy of a file serves whom, in which line of hosts and at which rate: Takahashi et al.'s planner, pure."""
