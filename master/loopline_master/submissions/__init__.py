"""What becomes of a request before the scheduler sees it: idempotency, staging of inputs, what may be retried."""
