"""Launching: an attempt becomes a tree of processes, and none of them survives its end.

``interface`` is the interface; ``posix`` and ``windows_launcher`` implement it. On POSIX three kinds of process take
part::

    agent (asyncio) --- zygote (one, bare Python) --- supervisor (one per slot, forked) --- the task and its children

The zygote forks supervisors. A supervisor starts one task after the other and is the subreaper of each, so that the
kernel says exactly what belongs to it, daemonised grandchildren included. It kills all of that when the task ends,
when the agent requests it, and when the agent dies. Their code is in ``loopline_worker/supervisor``. In the agent,
a ``SupervisorLink`` stands for one supervisor and a ``PosixTree`` for one attempt.

If tasks are short, several orders are prefetched at a supervisor, which starts one after the other
(``posix.DurationEstimate`` has their number). Claim tokens permit a start: the agent retracts unclaimed tokens, and
then knows that no other task starts there. It does so before it freezes or kills anything, so that the last tree of a
link is the running one. Reports of ends may be some milliseconds late; freezing and killing reach the right task
still.

Whatever a task costs beside itself matters, for it may be over in a millisecond. So priority, control groups and
limits are set once, in the supervisor, and inherited. Tasks are started by posix_spawn, which copies nothing; their
output travels with the report of the end; a scratch folder that was left empty serves the next task.
"""
