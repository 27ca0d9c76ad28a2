"""Times that depend on one another in a supervisor's process. ``loopline_worker/timings.py`` has the agent's."""

from __future__ import annotations

OUTPUT_QUIET_S = 0.003
"""A task's first output waits in its pipe for so long. Many tasks have ended by then, and all of it is read at once.

It is shorter than ``END_BATCH_S``, for a report of output sends the unsent ends too.
"""
END_BATCH_S = 0.008
"""While short tasks follow one another, the agent learns of an end at most so late: one message reports several.

It is shorter than the agent's ``PREFETCH_S``, so that prefetched tasks last until the agent has learnt of ends.
"""
KEEP_FOLDER_S = 0.05
"""A supervisor without tasks keeps its spare scratch folder for so long.

It is longer than ``END_BATCH_S``, in which the agent learns of the last end and may send the next task.
"""
LOOK_EVERY_S = 1.0
"""Time between two looks at the clock while a task has a time when it must have ended: a suspend may pass it."""
RETRY_S = 0.02
"""Pause between two attempts at killing, at being heard by the kernel, and the like; nothing depends on it."""
