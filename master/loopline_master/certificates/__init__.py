"""The master's keys: its own CA, the port's TLS, certificates of workers, secrets of jobs."""
