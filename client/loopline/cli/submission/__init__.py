"""``loopline submit``, one duty in each file.

The command (submit) and its groups of options (options, inputs); the rows of a sweep (sources) and how
they travel (sweep); job files (job_file) and positions in them (positions); the job that all of it makes (assemble,
merging); and what is shown (progress, receipt).
"""
