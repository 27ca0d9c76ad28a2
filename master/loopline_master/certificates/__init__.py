"""The master's own CA, and what is served by it: the port's TLS, certificates of workers."""
