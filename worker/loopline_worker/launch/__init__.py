"""How an attempt becomes a tree of processes, and how nothing of it is left.

``trees`` is the interface, ``posix`` and ``windows`` are behind it. On POSIX three kinds of process take part::

    agent (asyncio) --- launcher (one, bare Python) --- guard (one per slot, forked) --- the task and its children

``zygote`` is the launcher: it forks guards. ``guard`` starts one task after the other and is the subreaper of each,
so that the kernel says exactly what belongs to it, daemonised grandchildren included, and it kills all of it when the
task ends, when the agent says so, and when the agent dies. These two and what they import use only the standard
library's light modules: they are copied with every fork, and a guard is small. In the agent, ``line`` is what it has
of one guard, ``tree`` what it has of one attempt.

Where tasks are short, several orders are at a guard (``pace`` says how many), and it begins one after the other.
Which may begin, ``tickets`` say: what was not drawn the agent takes back, and from then on knows that no more begins
there than may have begun already. It does so before it freezes or kills anything, so that the last of a line's trees
is the one that runs. What it hears of ends may be some milliseconds late; what it does meets the right task still.

What a task costs beside itself is what matters here, for it may be over in a millisecond. So all that can be is set
once, in the guard, and inherited: priority, control groups, limits. The task is started by posix_spawn, which copies
nothing; what it writes comes home with the news of its end; its scratch folder, left empty, is the next one's.
"""
