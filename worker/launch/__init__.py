"""How an attempt becomes a tree of processes, and how nothing of it is left.

``trees`` is the interface, ``posix`` and ``windows`` are behind it. On POSIX three kinds of process take part::

    agent (asyncio) --- launcher (one, bare Python) --- guard (one per attempt, forked) --- the task and its children

``zygote`` is the launcher: it forks a guard in about a millisecond. ``guard`` is the subreaper of one attempt, so
that the kernel says exactly what belongs to it, daemonised grandchildren included, and it kills all of it when the
task ends, when the agent says so, and when the agent dies. These two and what they import use only the standard
library's light modules: they are copied with every fork.
"""
