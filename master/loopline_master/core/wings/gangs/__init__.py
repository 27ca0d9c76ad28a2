"""Gangs: parallel tasks, whose members run on several workers at once, all or none.

A launch of a gang has two phases, like a two-phase commit. Its members are *prepared* everywhere: inputs are there,
folders are made, slots are kept, nothing runs. Once the master knows that all are ready, one committed step sets the
start, and each member begins a delay after it receives it. Before that step no member can begin; after it, the gang
counts as running, and a missing member halts it.
"""
