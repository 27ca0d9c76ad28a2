"""Functions: an interpreter is kept warm for each session, and called again and again.

::

    agent: WarmLauncher -- Interpreters -- Interpreter ==socket== call_loop.py (in a tree of its own)

An interpreter is a task like any other to what is below it (launch/): it has its own process tree and scratch
folder, limits, and the sandbox if there is one. Its stdout is the socket over which it is told of calls. What calls
print, and what they come to, it appends to files without a name, which the agent reads on from where it was: a call
that prints nothing costs nothing for that, and what was written before a crash is there after it. A call's folder
that was left empty becomes the next call's.

A task's calls (one, or several) are a Tree to what is above: killing it kills the whole interpreter, and the next one
gets a fresh one. Where an interpreter waits that knows the function, a call begins in the same moment and ends as its
answer comes; only what takes a while is waited for. Between calls it stands still. Where files cannot be handed over
a socket (Windows), every task has an interpreter of its own.
"""
