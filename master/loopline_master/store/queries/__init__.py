"""What users read: one file for each subject, all from committed rows."""
