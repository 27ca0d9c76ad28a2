"""The wing *reservations*: a wide task starts in bounded time beside a stream of narrow ones."""
