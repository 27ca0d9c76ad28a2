"""Replay of a live master's event log under another policy or order, or with one more job.

*The model.* External events are repeated at the same moments: jobs and their users' requests, machines that joined,
left, fell silent or were drained, and the slots that they offered. The scheduler decides everything else again. The
time of an attempt (durations.py) is:

- the recorded time, if the recording ran the task on that machine at about that time;
- else the task's work divided by the machine's speed at that time. A task's *work* is its size; if that is unknown,
  the time of its attempts multiplied by the speed of their machine. A machine's *speed* follows from its attempts at
  tasks of known size; between two of them the earlier one counts; before any, the measured speed.

*Its limits.* Users' sizes are believed relative to one another, unless a job's tasks took at least four times more or
less than expected from the others: then that job's sizes are corrected. The time of an attempt includes everything
that slowed it (the owner, its neighbours, its input files), and is attributed to the machine. An attempt that was cut
off gives only a lower limit. Other work of a machine, or sleep, shows only in its attempts. Failures belong to the
task: each task fails as often as it did in the recording. Users' requests keep their times, even if the answer that
led to one would now arrive later. After the log's end the machines stay as they were.
"""
