"""Functions: an interpreter is kept warm for each session, and called again and again.

::

    agent: WarmLauncher -- Interpreters -- Interpreter ==socket== program.py (in a tree of its own)

An interpreter is a task like any other to what is below it (worker/launch): it has its own process tree and scratch
folder, limits, and the sandbox if there is one. Its stdout is the socket over which it is told of calls; each call
brings its own stdout and stderr along. A call is a Tree to what is above: killing it kills the whole interpreter, and
the next call gets a fresh one. Between calls it stands still. Where files cannot be handed over a socket (Windows),
every call has an interpreter of its own.
"""
