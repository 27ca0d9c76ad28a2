"""Times that depend on one another in the agent's process. ``supervisor/intervals.py`` has those of supervisors.

From short to long: a supervisor reports a task's end (``END_BATCH_S``) before its prefetched tasks are used up
(``PREFETCH_S``), and a task that runs longer than those (``SLOW_TASK_S``) keeps others from being prefetched behind
it.
"""

from __future__ import annotations

from loopline_worker.supervisor.intervals import END_BATCH_S

PREFETCH_S = 0.02
"""Most work that is prefetched at a supervisor: with more, other supervisors would run out.

It exceeds ``END_BATCH_S``, or a slot would wait for the agent between two short tasks.
"""
SLOW_TASK_S = 0.03
"""Nothing is prefetched behind a task that has run this long, because it may run as long again.

It exceeds ``PREFETCH_S``, so that a task as long as the work behind it counts as fast.
"""
LONGEST_COUNTED_S = 0.1
"""Longer tasks are counted as this long in the estimate of durations, so that a few short ones correct it."""
LAST_TASK_SHARE = 0.2
"""The last task's share of the estimate. One slow task ends prefetching, for its share alone is ``PREFETCH_S``."""
SUPERVISOR_IDLE_S = 30.0
"""A supervisor exits after this time without tasks."""
INTERPRETER_PAUSE_AFTER_S = 0.1
"""An interpreter is paused (frozen) after this time without calls; most calls are followed by another one sooner."""
INTERPRETER_IDLE_S = 60.0
"""An interpreter exits after this time without calls. It takes longer to start than a supervisor."""

SHORTEST_REPORT_PAUSE_S = 0.05
"""Shortest interval between Reports that only renew the lease, whatever the master asks for."""
GATHER_S = 0.05
"""While attempts wait here for a slot, news within this time after a Report are sent with the next one."""
ANSWER_WITHIN_S = 0.1
"""The next Report is sent after this time even if the last one has not been answered."""
REPORT_WITHIN_S = 0.5
"""A Report of a mere start waits this long: often the result comes first, and one frame tells both."""

LOOK_AGAIN_S = 0.02
"""Interval between readings of the idle detector until a freeze is complete."""
LOOK_EVERY_S = 0.1
"""The same while tasks run: the largest part of the time from an input until they are frozen."""
LOOK_WHILE_FROZEN_S = 0.5
"""The same while all tasks are frozen, when a quick thaw does not matter."""
CONTENTION_EVERY_S = 0.04
"""Interval between checks for contention while tasks run. Without CPU weights they may disturb others this long."""

STOP_GRACE_S = 5.0
"""Longest grace from SIGTERM to SIGKILL as the agent stops; its service kills it after 20 s."""

CHECK_DUE_EVERY_S = 0.1
"""Interval at which the runner looks for due checks of limits."""
FIRST_CHECK_S = 0.2
"""A shorter task is never checked: for a tenth of a second that would be a good part of the cost."""
CHECK_LIMITS_EVERY_S = 0.5
"""Interval between checks of limits that the system does not enforce."""

CHECK_CLOSELY_EVERY_S = 0.02
"""Interval between readings of a task's memory when it is close to its limit and no control group enforces it."""

assert END_BATCH_S < PREFETCH_S < SLOW_TASK_S < LONGEST_COUNTED_S
assert LAST_TASK_SHARE * LONGEST_COUNTED_S >= PREFETCH_S
assert INTERPRETER_PAUSE_AFTER_S < SUPERVISOR_IDLE_S < INTERPRETER_IDLE_S
assert GATHER_S <= ANSWER_WITHIN_S < REPORT_WITHIN_S
assert LOOK_AGAIN_S < CONTENTION_EVERY_S < LOOK_EVERY_S < LOOK_WHILE_FROZEN_S
assert CHECK_CLOSELY_EVERY_S < CHECK_DUE_EVERY_S <= FIRST_CHECK_S <= CHECK_LIMITS_EVERY_S
