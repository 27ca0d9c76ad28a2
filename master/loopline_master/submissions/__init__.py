"""Submissions: the handling of a request before the scheduler sees it. Idempotency, staging of inputs, retries."""
