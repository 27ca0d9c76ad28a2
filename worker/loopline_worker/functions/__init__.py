"""Functions: each session has an interpreter that is called again and again, so that it starts and imports once.

::

    agent: FunctionLauncher -- InterpreterPool -- Interpreter ==socket== call_loop.py (in a tree of its own)

To the launcher below (launch/) an interpreter is a task like any other: it has its own process tree and scratch
folder, its limits, and the sandbox if there is one. Its stdout is the socket over which it receives calls. It
appends the output and the results of calls to files without a name, which the agent reads from where it was: a call
that prints nothing costs nothing for that, and what was written before a crash is still there. A call's folder that
was left empty becomes the next call's.

To the runner above, a task's calls (one, or several) are a Tree: killing it kills the whole interpreter, and the next
call gets a fresh one. If an idle interpreter knows the function, a call starts at once and ends as its reply arrives;
only longer calls are awaited. Between calls the interpreter is paused.

A task has an interpreter of its own, started as a command, where files cannot be passed over a socket (Windows), and
if its output goes to pipes: a call with checkpoints, whose processes are stopped and whose output is saved with it.
"""
