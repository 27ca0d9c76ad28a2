"""Submissions: what happens to a request before the scheduler sees it. Idempotency, staging of inputs, retries."""
