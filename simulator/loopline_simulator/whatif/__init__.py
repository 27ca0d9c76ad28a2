"""Replay of a live master's event log under another policy or order, or with one more job.

*The model.* External events come again at the same moment: jobs and what their users did to them, machines that
joined, left, fell silent or were drained, and the slots that they offered. The scheduler itself decides all else
anew. The time an attempt takes (durations.py) is:

- the recorded time, if the recording ran the task on that machine at about that time;
- else the task's work over the machine's speed at that time. A task's *work* is its size, or, where that is
  unknown, what its attempts came to: their time by the speed of the machine. A machine's *speed* follows from its
  attempts at tasks of known size; between two of them that of the earlier one; before any, as measured.

*Its limits.* Sizes that users gave are believed relative to one another, unless a job's tasks took four times more or
less than the others' sizes let expect: then that job's sizes are corrected. The time of an attempt includes
everything that slowed it (the owner, its neighbours, its input files), and is attributed to the machine. An attempt
that was cut off says only that it takes longer. A machine that computed without being asked to, or slept, shows only
in its attempts. Failures belong to the task: each task fails as often as it was seen to. Users do what they did:
nobody submits later because an answer came later. After the log's end the machines stay as they were.
"""
