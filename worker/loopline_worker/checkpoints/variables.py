"""Names of the variables that a task with checkpoints has."""

FOLDER, TIMES = "LOOPLINE_CHECKPOINT", "LOOPLINE_RESUMED"
