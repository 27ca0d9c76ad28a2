"""Times that depend on one another in the agent's process. ``supervisor/intervals.py`` has those of supervisors.

From short to long: a supervisor reports a task's end (``END_BATCH_S``) before its prefetched tasks are used up
(``PREFETCH_S``), and a task that runs longer than those (``SLOW_TASK_S``) keeps others from being prefetched behind
it.
"""

from __future__ import annotations

from loopline_worker.supervisor.intervals import END_BATCH_S

PREFETCH_S = 0.02
"""So much work is prefetched at a supervisor at most: more would only be missing elsewhere.

It is longer than ``END_BATCH_S``, else a slot would wait for the agent between two short tasks.
"""
SLOW_TASK_S = 0.03
"""Nothing is prefetched behind a task that has run for so long, because it may run for as long again.

It is longer than ``PREFETCH_S``: a task that is as long as the work behind it is no exception.
"""
LONGEST_COUNTED_S = 0.1
"""A longer task counts as this in the estimate of durations, so that a few short ones correct the estimate."""
LAST_TASK_SHARE = 0.2
"""The last task's share of the estimate. One slow task ends prefetching, for its share alone is ``PREFETCH_S``."""
SUPERVISOR_IDLE_S = 30.0
"""A supervisor without tasks is kept for so long."""
INTERPRETER_PAUSE_AFTER_S = 0.1
"""An interpreter without calls is paused (frozen) after so long; most calls are followed by another one sooner."""
INTERPRETER_IDLE_S = 60.0
"""An interpreter without calls is kept for so long: longer than ``SUPERVISOR_IDLE_S``, for it is dearer to start."""

SHORTEST_REPORT_PAUSE_S = 0.05
"""Reports that only keep the lease leave no sooner after one another, whatever the master asks for."""
GATHER_S = 0.05
"""While attempts wait here for a slot, what happens within this time after a Report goes with the next one."""
ANSWER_WITHIN_S = 0.1
"""After this long the next Report leaves although the last one is not answered."""
REPORT_WITHIN_S = 0.5
"""A Report of a mere start waits this long: often the result comes first, and one frame tells both."""

LOOK_AGAIN_S = 0.02
"""The idle detector is read so often until a freeze is complete."""
LOOK_EVERY_S = 0.1
"""The same while tasks run: the largest part of the time from an input until they are frozen."""
LOOK_WHILE_FROZEN_S = 0.5
"""The same while all tasks are frozen, when a quick thaw does not matter."""
CONTENTION_EVERY_S = 0.04
"""Pause between looks at contention while tasks run: they may disturb for so long where no weight helps."""

STOP_GRACE_S = 5.0
"""Longest grace from SIGTERM to SIGKILL as the agent stops; its service kills it after 20 s."""

CHECK_DUE_EVERY_S = 0.1
"""The runner asks so often whether a check of limits is due."""
FIRST_CHECK_S = 0.2
"""A shorter task is never checked: for a tenth of a second that would be a good part of the cost."""
CHECK_LIMITS_EVERY_S = 0.5
"""Limits that the system does not enforce are checked so often."""

CHECK_CLOSELY_EVERY_S = 0.02
"""The memory of a task that may exceed its limit any moment is read so often, where no control group keeps it."""

assert END_BATCH_S < PREFETCH_S < SLOW_TASK_S < LONGEST_COUNTED_S
assert LAST_TASK_SHARE * LONGEST_COUNTED_S >= PREFETCH_S
assert INTERPRETER_PAUSE_AFTER_S < SUPERVISOR_IDLE_S < INTERPRETER_IDLE_S
assert GATHER_S <= ANSWER_WITHIN_S < REPORT_WITHIN_S
assert LOOK_AGAIN_S < CONTENTION_EVERY_S < LOOK_EVERY_S < LOOK_WHILE_FROZEN_S
assert CHECK_CLOSELY_EVERY_S < CHECK_DUE_EVERY_S <= FIRST_CHECK_S <= CHECK_LIMITS_EVERY_S
