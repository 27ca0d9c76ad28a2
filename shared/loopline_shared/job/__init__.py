"""Parts of a job's specification, each with its rules."""
