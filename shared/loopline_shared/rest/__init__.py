"""Bodies and addresses of the REST API: one set for the master and for clients."""
