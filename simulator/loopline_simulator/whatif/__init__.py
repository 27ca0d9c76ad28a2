"""What if: a live master's event log, lived through again under another policy or order, or with one more job.

*The model.* What came from outside comes again at the same moment: jobs and what their owners did to them,
machines that joined, left, fell silent or were drained, and the slots that they offered. What followed from the
scheduler's decisions is worked out anew by the very scheduler. How long an attempt takes (durations.py):

- where the recording ran the task on that machine at about that time, as long as it took there;
- else the task's work over the machine's speed at that time. A task's *work* is its size, or, where that is not
  known, what its attempts came to: their time by the speed of the machine. A machine's *speed* is what its
  attempts at tasks of known size say; between two of them that of the earlier one; before any, as measured.

*Its limits.* Sizes that users gave are believed relative to one another, unless a job's tasks took four times
more or less than the others' sizes let expect: then that job's are set right. What an attempt took holds all that
slowed it (its owner, its neighbours, its input files), and is taken for the machine's doing. An attempt that was
cut off says only that it takes longer. A machine that computed without being asked to, or slept, shows only in
its attempts. Failures are the task's: each task fails as often as it was seen to. Users do what they did: nobody
submits later because an answer came later. After the log's end the machines stay as they were.
"""
