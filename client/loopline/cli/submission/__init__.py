"""``loopline submit``, a duty a file: the command; its options in groups (options, sweep_options, inputs); where a
sweep's rows come from (sources, spreadsheet) and how they travel (sweep); job files (job_file) and where in them
things are (positions); putting it all together (assemble); what is shown (progress, receipt).
"""
