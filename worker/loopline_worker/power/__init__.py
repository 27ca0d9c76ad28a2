"""The computer's sleep: the good-bye to the master, and locks that prevent sleep."""
