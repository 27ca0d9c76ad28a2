"""Bounds for each client: rates of requests, and time of the event loop."""
