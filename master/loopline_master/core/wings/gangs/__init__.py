"""Gangs: parallel tasks, whose members run on several workers at once, all or none.

A launch of a gang has two phases, as a commit of two phases has. Its members are *prepared* everywhere: inputs are
there, folders are made, slots are kept, nothing runs. Once the master knows all of them ready, one committed step
names the start, and each member begins a delay after it hears of it. Before that step no member can begin; after it,
the gang counts as running, and a member that is missing halts it.
"""
